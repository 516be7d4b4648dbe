{-# OPTIONS_HADDOCK not-home #-}

-- | Datagrams, over UDP and in the Unix domain. A datagram between machines may be lost, doubled
-- and overtaken; within a machine it arrives, in order. A slow receiver loses what no longer fits
-- into its socket's memory; in the Unix domain the sender waits instead.
module Weft.Sim.Internal.Network.Datagrams
  ( receiveDatagram,
    boxReadable,
    sendDatagram,
    connectBox,
    shutBox,
    closeBox,
  )
where

import Control.Applicative ((<|>))
import Control.Monad (filterM, unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.Maybe (isJust)
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Foreign.C.Error
import Network.Socket (Family (..), SockAddr (..))
import Weft.Internal.Core.SystemCall (Buffer, ShutdownHow (..))
import Weft.Internal.Core.Trace (Why (..))
import Weft.Sim.Internal.Network.Bytes (copyInto, roomOf)
import Weft.Sim.Internal.Network.Ports
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | Take the oldest datagram, or as much of it as the buffer has room for.
receiveDatagram :: Box -> String -> Buffer -> Int -> Int -> Attempt (Int, SockAddr)
receiveDatagram box what buffer offset count =
  takeError (boxError box) >>= \case
    Just e -> refusal what e
    Nothing ->
      readIORef (boxQueue box) >>= \case
        (bytes, from) :<| others -> do
          let (start, room) = roomOf buffer offset count
              part = ByteString.take room bytes
          copyInto buffer start part
          writeIORef (boxQueue box) others
          modifyIORef' (boxHeld box) (subtract (weight bytes))
          serve (boxSenders box)
          success (ByteString.length part, from)
        Empty -> do
          shut <- readIORef (boxInShut box)
          if shut then success (0, SockAddrInet 0 0) else blocked

boxReadable :: Box -> Attempt ()
boxReadable box = do
  queue <- readIORef (boxQueue box)
  failed <- readIORef (boxError box)
  shut <- readIORef (boxInShut box)
  if shut || isJust failed || not (Seq.null queue) then success () else blocked

-- The memory that a datagram takes, with what the kernel keeps beside it.
weight :: ByteString -> Int
weight bytes = ByteString.length bytes + 256

boxRoom :: Int
boxRoom = 212_992

fits :: Box -> ByteString -> IO Bool
fits box bytes = (\held -> held == 0 || held + weight bytes <= boxRoom) <$> readIORef (boxHeld box)

sendDatagram :: Network -> Sock -> Box -> String -> ByteString -> Maybe SockAddr -> Answering Int
sendDatagram net s box what bytes address ask k = do
  shut <- readIORef (boxOutShut box)
  pending <- takeError (boxError box)
  peer <- readIORef (boxPeer box)
  case address <|> peer of
    _ | Just e <- pending -> refuse what e ask k
    _ | shut -> refuse what ePIPE ask k
    Nothing -> refuse what (if sockFamily s == AF_UNIX then eNOTCONN else eDESTADDRREQ) ask k
    Just to
      | sockFamily s == AF_UNIX -> sendUnix net s what copied to ask k
      | ByteString.length bytes > 65_507 -> refuse what eMSGSIZE ask k
      | otherwise -> case fromProgram (sockFamily s) to of
          Left e -> refuse what e ask k
          Right (ip, port) -> sendInet net s box copied (if isAny ip then loopbackOf ip else ip) port >>= answer Completed ask k . either (Left . failure what Nothing) Right
  where
    copied = ByteString.copy bytes

sendInet :: Network -> Sock -> Box -> ByteString -> IP -> Port -> IO (Either Errno Int)
sendInet net s box !bytes ip port
  | port == 0 = pure (Left eINVAL)
  | otherwise = do
      bound <- ensureBound net s (if sockFamily s == AF_INET6 then V6 (0, 0, 0, 0) else V4 0)
      leads <- destination net here ip
      case (bound, leads) of
        (Left _, _) -> pure (Left eAGAIN)
        (_, NoRoute) -> pure (Left eNETUNREACH)
        (_, ToNobody) -> sent <$ told "is lost: that is nobody's address"
        (_, ToMachine there) -> do
          own <- sourceAddress s ip
          path <- pathFrom (netLinks net) here there
          case path of
            Over _ -> sent <$ travel there path own
            _ -> sent <$ inOrder net here (deliver there path own)
  where
    world = netWorld net
    conditions = worldConditions world
    here = sockMachine s
    sent = Right (ByteString.length bytes)
    told what =
      note world (show here <> ": datagram of " <> show (ByteString.length bytes) <> " bytes to " <> show (toProgram (sockFamily s) ip port) <> " " <> what)
    travel there path own = do
      whole <- isPassable path
      lostByLink <- isLossy world path
      lostByChance <- chance (worldRandom world) (datagramLoss conditions)
      if not whole || lostByLink || lostByChance
        then told "is lost"
        else do
          twice <- chance (worldRandom world) (datagramDuplication conditions)
          when twice (told "is doubled")
          let go = do
                instant <- arrivalOver world path (ByteString.length bytes)
                void (at (worldEvents world) instant (deliver there path own))
          go >> when twice go
    deliver there path own = do
      up <- readIORef (machineUp there)
      whole <- isPassable path
      if not (up && whole)
        then told "is lost"
        else do
          socks <- boxesAt net there ip port >>= filterM (wants own)
          case socks of
            [] -> told "finds nobody" >> unreachable there
            _ -> do
              i <- below (worldRandom world) (length socks)
              let to = socks !! i
              readIORef (sockRole to) >>= \case
                Datagrams b -> do
                  room <- fits b bytes
                  if room
                    then told "has arrived" >> put b bytes (uncurry (toProgram (sockFamily to)) own)
                    else told "is lost: the socket's memory is full"
                _ -> pure ()
    -- A socket that is connected receives from its correspondent only.
    wants own o =
      readIORef (sockRole o) >>= \case
        Datagrams b -> maybe True (== uncurry (toProgram (sockFamily o)) own) <$> readIORef (boxPeer b)
        _ -> pure False
    -- Only a socket that is connected is told.
    unreachable there = do
      peer <- readIORef (boxPeer box)
      when (peer == Just (toProgram (sockFamily s) ip port)) $ do
        back <- pathFrom (netLinks net) there here
        instant <- arrivalOver world back 0
        void . at (worldEvents world) instant $ do
          whole <- isPassable back
          when whole $ do
            writeIORef (boxError box) (Just eCONNREFUSED)
            serve (boxReaders box)

put :: Box -> ByteString -> SockAddr -> IO ()
put box bytes from = do
  modifyIORef' (boxQueue box) (|> (bytes, from))
  modifyIORef' (boxHeld box) (+ weight bytes)
  serve (boxReaders box)

-- | Let something happen on a machine after the delay of its loopback, and after what was to
-- happen before. Events of one instant come in any order: each does what is first.
inOrder :: Network -> Machine -> IO () -> IO ()
inOrder net machine act = do
  LoopQueue acts before <- IntMap.findWithDefault (LoopQueue Seq.empty 0) number <$> readIORef (netLoops net)
  instant <- max before <$> arrivalOver (netWorld net) Loopback 0
  set (LoopQueue (acts |> act) instant)
  void . at (worldEvents (netWorld net)) instant $
    readIORef (netLoops net) >>= \loops -> case IntMap.lookup number loops of
      Just (LoopQueue (first :<| others) lastOne) -> set (LoopQueue others lastOne) >> first
      _ -> pure ()
  where
    number = machineNumber machine
    set = modifyIORef' (netLoops net) . IntMap.insert number

sendUnix :: Network -> Sock -> String -> ByteString -> SockAddr -> Answering Int
sendUnix net s what !bytes to ask k = case to of
  SockAddrUnix path
    | ByteString.length bytes > boxRoom -> refuse what eMSGSIZE ask k
    | otherwise ->
        socketAt net (sockMachine s) path >>= \case
          Left e -> refuse what e ask k
          Right other ->
            readIORef (sockRole other) >>= \case
              Datagrams b -> standIn Completed (boxSenders b) what Nothing (attempt b) ask k
              _ -> refuse what ePROTOTYPE ask k
  _ -> refuse what eINVAL ask k
  where
    attempt b = do
      open <- isOpenSock net s
      shut <- readIORef (boxInShut b)
      room <- fits b bytes
      own <- pathName s
      if
        | not open -> refusal what canceled
        | shut -> refusal what ePIPE
        | room -> put b bytes own >> success (ByteString.length bytes)
        | otherwise -> blocked

-- | Correspond with this address only. What came from others is not kept.
connectBox :: Network -> Sock -> Box -> SockAddr -> IO (Either Errno ())
connectBox net s box address
  | sockFamily s == AF_UNIX = case address of
      SockAddrUnix path ->
        socketAt net (sockMachine s) path >>= traverse (\_ -> correspond address)
      _ -> pure (Left eINVAL)
  | otherwise = case fromProgram (sockFamily s) address of
      Left e -> pure (Left e)
      Right (ip, port) -> do
        let to = if isAny ip then loopbackOf ip else ip
        leads <- destination net (sockMachine s) to
        case leads of
          NoRoute -> pure (Left eNETUNREACH)
          _ -> do
            bound <-
              readIORef (sockBound s) >>= \case
                Unbound -> bindSomewhere net s (sourceFor (sockMachine s) to)
                BoundInet own p | isAny own -> Right () <$ writeIORef (sockBound s) (BoundInet (sourceFor (sockMachine s) to) p)
                _ -> pure (Right ())
            traverse (\() -> correspond (toProgram (sockFamily s) to port)) bound
  where
    correspond peer = do
      writeIORef (boxPeer box) (Just peer)
      mine <- Seq.filter ((== peer) . snd) <$> readIORef (boxQueue box)
      writeIORef (boxQueue box) mine
      writeIORef (boxHeld box) (sum (weight . fst <$> mine))

shutBox :: Box -> ShutdownHow -> IO (Either Errno ())
shutBox box how = do
  peer <- readIORef (boxPeer box)
  case peer of
    Nothing -> pure (Left eNOTCONN)
    Just _ -> do
      when (how /= ShutdownSend) (writeIORef (boxInShut box) True)
      unless (how == ShutdownReceive) (writeIORef (boxOutShut box) True)
      serve (boxReaders box)
      serve (boxSenders box)
      pure (Right ())

closeBox :: Box -> IO ()
closeBox box = do
  dismiss (boxReaders box) canceled
  dismiss (boxSenders box) eCONNREFUSED
