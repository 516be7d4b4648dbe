-- |
-- Description : A world as a script for packetdrill
--
-- The actions of one end and the segments that came to it, in the language of packetdrill's scripts
-- (@weft-tcp\/packetdrill@). Sequence numbers are relative, as they are there.
module World.Script (script) where

import Data.Int (Int64)
import Data.List (intercalate)
import Data.Maybe (mapMaybe)
import Data.Word (Word32)
import Weft.Tcp.Congestion (controlName)
import Weft.Tcp.Connection
import Weft.Tcp.Segment
import Weft.Tcp.Sequence
import World
import World.Plan

-- | The world as the end sees it where something is wrong.
script :: Plan -> Wrong -> String
script plan wrong =
  unlines $
    [ "// " <> wrongWhat wrong,
      "// A world of two ends, shrunk; this is " <> (if me == A then "the end that connects" else "the end that listens") <> ", with " <> show (settingReceiveBuffer settings) <> " bytes to receive in and segments of " <> show (settingMss settings) <> ".",
      "// --so_flags=" <> intercalate "," flags
    ]
      <> zipWith timed times (socket <> map snd events)
  where
    me = wrongSide wrong
    settings = sideSettings (planOf me plan)
    flags =
      [if controlName (settingControl settings) == "newreno" then "reno" else "cubic"]
        <> [name | (True, name) <- [(not (settingSack settings), "nosack"), (not (settingTimestamps settings), "notimestamps"), (not (settingScaling settings), "noscale"), (settingEcn settings == OfferEcn, "ecn"), (settingEcn settings == NoEcn, "noecn"), (not (settingTailProbe settings), "notlp"), (settingPathProbing settings, "mtuprobing")]]
    own = sideIss (planOf me plan)
    peers = sideIss (planOf (other me) plan)
    -- One socket that connects, or one that listens and one that is accepted.
    fd = if me == A then "3" else "4" :: String
    socket = "socket(..., SOCK_STREAM, IPPROTO_TCP) = 3" : "setsockopt(3, SOL_SOCKET, SO_REUSEADDR, [1], 4) = 0" : if me == A then ["fcntl(3, F_SETFL, O_RDWR|O_NONBLOCK) = 0"] else ["bind(3, ..., ...) = 0", "listen(3, 1) = 0"]
    events = mapMaybe (\l -> (,) (timeOf l) <$> line l) (reverse (wrongLog wrong))
    times = map (const 0) socket <> (\ts -> zipWith (-) ts (0 : ts)) (map fst events)
    timed :: Int64 -> String -> String
    timed t what = "+" <> seconds' t <> " " <> what
    seconds' t = if t == 0 then "0" else show (t `div` 1000000) <> "." <> drop 1 (show (1000000 + t `mod` 1000000))
    timeOf = \case
      Called t _ _ -> t
      Sent t _ _ _ _ -> t
      Came t _ _ _ -> t
    line = \case
      Called _ s c | s == me -> Just (call c)
      Sent _ s _ g _ | s == me -> Just ("> " <> packet own peers g)
      Came _ s _ g | s == me -> Just ("< " <> packet peers own g)
      _ -> Nothing
    call = \case
      Connects -> "connect(3, ..., ...) = -1 EINPROGRESS (Operation now in progress)"
      Accepts | me == A -> "getsockopt(3, SOL_SOCKET, SO_ERROR, [0], [4]) = 0"
      Accepts -> "accept(3, ..., ...) = 4"
      Writes n -> "write(" <> fd <> ", ..., " <> show n <> ") = " <> show n
      Reads n -> "read(" <> fd <> ", ..., " <> show n <> ") = " <> show n
      Shuts -> "shutdown(" <> fd <> ", SHUT_WR) = 0"
      Aborts -> "setsockopt(" <> fd <> ", SOL_SOCKET, SO_LINGER, {onoff=1, linger=0}, 8) = 0\n+0 close(" <> fd <> ") = 0"

-- | A segment, given where the numbers of its sender and of its receiver begin.
packet :: Seq -> Seq -> Segment -> String
packet from to g =
  unwords $
    [flags <> " " <> show start <> ":" <> show (start + segmentLength g) <> "(" <> show (segmentLength g) <> ")"]
      <> ["ack " <> show (distance to (segmentAck g)) | f `has` ack]
      <> ["win " <> show (segmentWindow g)]
      <> ["<" <> intercalate "," options <> ">" | not (null options)]
  where
    f = segmentFlags g
    start = distance from (segmentSeq g) :: Word32
    flags = [c | (c, x) <- zip "FSRPEW" [fin, syn, rst, psh, ece, cwr], f `has` x] <> (if f `has` ack then "." else "")
    o = segmentOptions g
    options =
      ["mss " <> show n | Just n <- [optionMss o]]
        <> ["sackOK" | optionSackPermitted o]
        <> ["TS val " <> show v <> " ecr " <> show e | Just (Timestamps v e) <- [optionTimestamps o]]
        <> ["wscale " <> show n | Just n <- [optionScale o]]
        <> ["sack " <> unwords [show (distance to a) <> ":" <> show (distance to b) | Range a b <- optionSack o] | not (null (optionSack o))]
