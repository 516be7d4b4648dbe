-- |
-- Description : A machine with connections, in virtual time
--
-- A kernel's state of connections: which there are, their payload, the packets that go out.
-- 'Sockets' has the calls of programs.
module Machine
  ( World (..),
    Sim,
    Kind (..),
    Socket (..),
    Conn (..),
    newWorld,

    -- * Time and packets
    advanceTo,
    nextDeadline,
    packetIn,
    packetOut,

    -- * Connections
    conn,
    newConn,
    getConn,
    setConn,
    input,
    apply,
    drop',
    isListening,
    settingsOf,
  )
where

import Control.Monad (forM_, unless, when)
import Control.Monad.State.Strict (gets, modify', state)
import Control.Monad.State.Strict qualified as St
import Data.Bits ((.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (find)
import Data.IntMap.Strict qualified as I
import Data.Map.Strict qualified as M
import Data.Maybe (fromMaybe, isJust)
import Data.Sequence qualified as S
import Data.Word (Word16)
import Foreign.C.Error (Errno (..))
import Options
import Weft.Tcp.Connection
import Weft.Tcp.Icmp
import Weft.Tcp.Internal.Small
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Options
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | An address and a port.
type Name = (Address, Word16)

-- | Everything.
data World = World
  { wNow :: !Instant,
    wSockets :: !(I.IntMap Socket),
    wConns :: !(I.IntMap Conn),
    wNextConn, wPort :: !Int,
    wOut :: !(S.Seq (Instant, ByteString)),
    wSettings :: !Settings
  }

-- | A computation over it.
type Sim = St.State World

data Kind
  = -- | Neither listens nor was ever connected.
    Fresh
  | -- | How many connections may wait to be accepted, and which do.
    Listening Int [Int]
  | Attached Int

data Socket = Socket {sKind :: Kind, sOptions :: Values, sLocal :: Maybe Name}

data Conn = Conn
  { cLocal, cRemote :: Name,
    cTcb :: Tcb,
    -- | Bytes from 'cOutFrom' on.
    cOut :: ByteString,
    cOutFrom :: Seq,
    -- | Received bytes, by their distance from the first.
    cIn :: M.Map Int ByteString,
    cFirst :: Maybe Seq,
    -- | A failure that was not told yet.
    cError :: Int,
    cOpened, cEnded, cReset, cWriteShut, cReadShut :: Bool,
    -- | The descriptor; or the listener.
    cOwner, cParent :: Maybe Int
  }

-- | At this moment, with these settings.
newWorld :: Instant -> Settings -> World
newWorld now = World now I.empty I.empty 1 40000 S.empty

-- Time and packets ---------------------------------------------------------------------------

-- | When 'advanceTo' has something to do.
nextDeadline :: Sim Instant
nextDeadline = gets (\w -> minimum (never : map (deadline . cTcb) (I.elems (wConns w))))

-- | It is this late. Deadlines that have passed are served once each.
advanceTo :: Instant -> Sim ()
advanceTo now = do
  modify' (\w -> w {wNow = max now (wNow w)})
  due <- gets (\w -> [i | (i, c) <- I.toList (wConns w), deadline (cTcb c) <= wNow w])
  forM_ due (input Due B.empty)

-- | A packet from the network.
packetIn :: ByteString -> Sim ()
packetIn bytes' = case parsePacket bytes' of
  Right p
    | packetProtocol p == protocolTcp,
      Right (Ports from to, s, payload) <- parseSegment (packetSource p) (packetTarget p) (packetPayload p) ->
        segmentIn (packetTarget p, to) (packetSource p, from) (classed (packetClass p) s) payload
    | packetProtocol p `elem` [protocolIcmp, protocolIcmp6],
      Right (Trouble what quoted) <- parseMessage (packetSource p) (packetTarget p) (packetPayload p),
      Just q <- parseQuoted quoted,
      Ports from to <- quotedPorts q -> do
        found <- lookupConn (quotedSource q, from) (quotedTarget q, to)
        forM_ found (\(i, _) -> input (Icmp what (quotedSeq q)) B.empty i)
  _ -> pure ()

-- | The oldest packet that was sent and not taken yet, and when it was sent.
packetOut :: Sim (Maybe (Instant, ByteString))
packetOut = state $ \w -> case S.viewl (wOut w) of
  x S.:< rest -> (Just x, w {wOut = rest})
  S.EmptyL -> (Nothing, w)

lookupConn :: Name -> Name -> Sim (Maybe (Int, Conn))
lookupConn local remote = gets (find (\(_, c) -> cLocal c == local && cRemote c == remote && tcbState (cTcb c) /= Closed) . I.toList . wConns)

segmentIn :: Name -> Name -> Segment -> ByteString -> Sim ()
segmentIn local remote s payload = do
  found <- lookupConn local remote
  case found of
    Just (i, c)
      | mayReplace s (cTcb c) -> setConn i c {cTcb = (cTcb c) {tcbState = Closed}} >> drop' i >> listen' (sndNxt (cTcb c) `advance` 65537)
      -- A full queue: the handshake does not end (the peer's next segment tries again).
      | tcbState (cTcb c) == SynReceived,
        Just l <- cParent c -> do
          full <- isFull l
          waits <- if segmentSpan s == 0 then deferred l c else pure False
          unless ((full || waits) && not (segmentFlags s `has` syn) && not (segmentFlags s `has` rst)) (input (Arrived s) payload i)
      | otherwise -> input (Arrived s) payload i
    Nothing -> listen' (initialSequence 0x2c6e8a51 0)
  where
    listen' theirIss = do
      listener <- gets (find (\(_, x) -> isListening x && fmap snd (sLocal x) == Just (snd local)) . I.toList . wSockets)
      now <- gets wNow
      base <- gets wSettings
      case listener of
        Just (fd, x)
          | Just st <- passiveOpen (settingsOf local x base) theirIss 0 now s -> do
              full <- isFull fd
              unless full $ do
                i <- newConn (conn local remote (stepTcb st)) {cParent = Just fd, cOutFrom = theirIss `advance` 1}
                apply i s payload st
          | segmentFlags s `has` ack -> answerNobody
          | otherwise -> pure ()
        Nothing -> answerNobody
    answerNobody = forM_ (refusal s) (emit local remote 0 B.empty)

-- TCP_DEFER_ACCEPT: an acknowledgement alone does not open a connection at first.
deferred :: Int -> Conn -> Sim Bool
deferred l c = gets $ \w -> case I.lookup l (wSockets w) of
  Just x -> fromIntegral (sndBackoff (cTcb c)) < deferrals (sOptions x)
  Nothing -> False

isListening :: Socket -> Bool
isListening x = case sKind x of Listening {} -> True; _ -> False

isFull :: Int -> Sim Bool
isFull l = gets (\w -> case sKind <$> I.lookup l (wSockets w) of Just (Listening n q) -> length q > n; _ -> False)

-- | The settings for connections of a socket at this address: the link's payload is smaller in version 6.
settingsOf :: Name -> Socket -> Settings -> Settings
settingsOf local x base = settingsWith (sOptions x) $ case fst local of
  Address4 {} -> base
  Address6 {} -> base {settingMss = min 1440 (settingMss base), settingHeaders = 60}

conn :: Name -> Name -> Tcb -> Conn
conn local remote t =
  Conn
    { cLocal = local,
      cRemote = remote,
      cTcb = t,
      cOut = B.empty,
      cOutFrom = sndUna t `advance` 1,
      cIn = M.empty,
      cFirst = Nothing,
      cError = 0,
      cOpened = False,
      cEnded = False,
      cReset = False,
      cWriteShut = False,
      cReadShut = False,
      cOwner = Nothing,
      cParent = Nothing
    }

newConn :: Conn -> Sim Int
newConn c = state (\w -> (wNextConn w, w {wNextConn = wNextConn w + 1, wConns = I.insert (wNextConn w) c (wConns w)}))

setConn :: Int -> Conn -> Sim ()
setConn i c = modify' (\w -> w {wConns = I.insert i c (wConns w)})

-- Give an input to a connection.
input :: Input -> ByteString -> Int -> Sim ()
input what payload i = do
  found <- gets (I.lookup i . wConns)
  now <- gets wNow
  forM_ found $ \c -> do
    let st = step now what (cTcb c)
        from = case what of
          Arrived s -> s
          _ -> Segment (Seq 0) (Seq 0) mempty 0 0 noOptions 0
    -- Without a user a stack keeps records.
    setConn i c {cTcb = (if isJust (cOwner c) then id else throughRecord) (stepTcb st)}
    apply i from payload st

-- Send what a step sends, and tell its answers.
apply :: Int -> Segment -> ByteString -> Step -> Sim ()
apply i s payload st = do
  forM_ (stepAnswers st) answer
  c <- gets ((I.! i) . wConns)
  forM_ (stepSegments st) $ \g -> do
    let at = fromIntegral (distance (cOutFrom c) (segmentSeq g))
        bytes' = if segmentLength g == 0 then B.empty else B.take (fromIntegral (segmentLength g)) (B.drop at (cOut c))
    tos <- gets (\w -> fromMaybe 0 (cOwner c >>= (`I.lookup` wSockets w) >>= valueOf (0, 1) . sOptions))
    emit (cLocal c) (cRemote c) tos bytes' g
  -- Acknowledged bytes go after the segments were cut out of them.
  forM_ [n | Acknowledged n <- stepAnswers st] $ \n ->
    change (\x -> x {cOut = B.drop (fromIntegral n) (cOut x), cOutFrom = cOutFrom x `advance` n})
  when (tcbState (stepTcb st) == Closed) (drop' i)
  where
    change f = modify' (\w -> w {wConns = I.adjust f i (wConns w)})
    answer = \case
      Opened -> do
        change (\x -> x {cOpened = True})
        parent <- gets (cParent . (I.! i) . wConns)
        forM_ parent $ \l -> modify' (\w -> w {wSockets = I.adjust (queued i) l (wSockets w)})
      Store ranges -> change $ \x ->
        let first = fromMaybe (rcvRead (cTcb x)) (cFirst x)
            first' = if isJust (cFirst x) then first else readableFrom (cTcb x)
            piece (Range a b) = (fromIntegral (distance first' a), B.take (fromIntegral (distance a b)) (B.drop (fromIntegral (distance (segmentSeq s) a)) payload))
         in x {cFirst = Just first', cIn = foldr (uncurry M.insert . piece) (cIn x) ranges}
      EndOfStream -> change (\x -> x {cEnded = True})
      Acknowledged _ -> pure ()
      Failed why -> do
        c <- gets ((I.! i) . wConns)
        change (\x -> x {cReset = True, cError = errnoOf (cEnded c) why})
    errnoOf ended = \case
      Reset | ended -> ePipe
      why -> let Errno n = failureErrno why in fromIntegral n
    queued k x = case sKind x of
      Listening n q -> x {sKind = Listening n (q ++ [k])}
      _ -> x

-- A connection that has ended and that no socket holds is forgotten.
drop' :: Int -> Sim ()
drop' i = do
  held <- gets (maybe False (\c -> isJust (cOwner c) || cOpened c && isJust (cParent c)) . I.lookup i . wConns)
  unless held (modify' (\w -> w {wConns = I.delete i (wConns w)}))

emit :: Name -> Name -> Int -> ByteString -> Segment -> Sim ()
emit (here, from) (there, to) tos payload s = modify' $ \w ->
  w {wOut = wOut w S.|> (wNow w, buildPacket (Packet here there protocolTcp 64 (fromIntegral tos .|. classOf s) 0 bytes'))}
  where
    bytes' = buildSegment here there (Ports from to) s payload

-- | The connection with this number, which is there.
getConn :: Int -> Sim Conn
getConn i = gets ((I.! i) . wConns)
