{-# OPTIONS_HADDOCK not-home #-}

-- | Listening, connecting and accepting, for TCP and for stream sockets of the Unix domain. TCP's
-- handshake takes its three steps over the network; any of them may be lost, and is then repeated.
module Weft.Sim.Internal.Network.Listen
  ( startListening,
    stopListening,
    connectInet,
    connectUnix,
    acceptFrom,
    listenerReady,
    listenerGone,
  )
where

import Control.Monad (unless, void, when)
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Sequence (Seq (..), (|>))
import Data.Sequence qualified as Seq
import Foreign.C.Error
import Network.Socket (SockAddr (..), SocketOption (..))
import Weft.Internal.Core.SystemCall (Socket (..))
import Weft.Internal.Core.Trace (Why (..))
import Weft.Internal.Data.Shortage (runShort)
import Weft.Internal.Data.Time (Duration (..), seconds)
import Weft.Internal.Kernel (hostReport)
import Weft.Internal.Os.Address (showAddress)
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Network.Ports
import Weft.Sim.Internal.Network.Segments
import Weft.Sim.Internal.Network.Types
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | A bound socket accepts connections from now on. As on Linux one more may wait than was said.
startListening :: Network -> Sock -> SockAddr -> Int -> IO ()
startListening net s address backlog =
  readIORef (sockRole s) >>= \case
    Listening l -> writeIORef (listenerRoom l) room
    _ -> do
      l <- newListener address room
      writeIORef (sockRole s) (Listening l)
      note (netWorld net) (show (sockMachine s) <> ": listens on " <> showAddress address)
  where
    room = 1 + max 0 (min 4096 backlog)

-- | The listener accepts no more: connections that wait are reset.
stopListening :: Network -> Listener -> IO ()
stopListening net l = do
  writeIORef (listenerClosed l) True
  waiting <- readIORef (listenerQueue l)
  writeIORef (listenerQueue l) Seq.empty
  for_ waiting $ \end -> do
    setFlag (endFlags end) Closed True
    phase <- readIORef (endPhase end)
    unless (isGone phase) (push net end Reset)
  sweep (listenerConnecting l)

hasRoom :: Listener -> IO Bool
hasRoom l = do
  there <- Seq.length <$> readIORef (listenerQueue l)
  coming <- readIORef (listenerPending l)
  room <- readIORef (listenerRoom l)
  pure (there + coming < room)

-- How much a connection of this socket holds in the direction that it sends.
bufferOf :: Network -> Sock -> IO Int
bufferOf net s = do
  options <- readIORef (sockOptions s)
  pure $ case Map.lookup (optionKey SendBuffer) options of
    Just n -> max 1 n
    Nothing -> streamBuffer (worldConditions (netWorld net))
  where
    optionKey (SockOpt level name) = (level, name)

connectInet :: Network -> Sock -> SockAddr -> IP -> Port -> Maybe Int64 -> Answering ()
connectInet net s address to port limit ask k = do
  let here = sockMachine s
      ip = if isAny to then loopbackOf to else to
  bound <- ensureBound net s (sourceFor here ip)
  leads <- destination net here ip
  case (bound, leads) of
    (Left e, _) -> refuse what (if e == eADDRINUSE then eADDRNOTAVAIL else e) ask k
    (_, NoRoute) -> refuse what eNETUNREACH ask k
    (_, ToNobody) -> do
      end <- begin here Nothing ip
      alarm <- after (worldEvents world) (durationNanoseconds (min (seconds 3) (connectPatience conditions))) (giveUp end eHOSTUNREACH)
      writeIORef (endAlarm end) (Just alarm)
      wait end
    (_, ToMachine there) -> do
      end <- begin here (Just there) ip
      back <- pathFrom (netLinks net) there here
      alarm <- after (worldEvents world) (durationNanoseconds (connectPatience conditions)) (giveUp end eTIMEDOUT)
      writeIORef (endAlarm end) (Just alarm)
      knock net end there back ip port 1_000_000_000
      wait end
  where
    world = netWorld net
    conditions = worldConditions world
    what = "connect to " <> showAddress address
    begin here there ip = do
      local <- sourceAddress s ip
      modifyIORef' (sockBound s) (namedAs (fst local))
      out <- maybe (pure Loopback) (pathFrom (netLinks net) here) there
      back <- maybe (pure Loopback) (\m -> pathFrom (netLinks net) m here) there
      outgoing <- bufferOf net s >>= newFlow out
      incoming <- newFlow back (streamBuffer conditions)
      end <- newEnd here (uncurry (toProgram (sockFamily s)) local) address incoming outgoing Nothing Connecting
      writeIORef (sockRole s) (Streaming end)
      pure end
    -- Once connected it has the address from which it sends.
    namedAs ip = \case
      BoundInet _ p -> BoundInet ip p
      other -> other
    giveUp end e =
      readIORef (endPhase end) >>= \case
        Connecting -> do
          closed <- isSet (endFlags end) Closed
          unless closed $ note world (endName end <> ": no connection to " <> showAddress address <> (if e == eTIMEDOUT then ": timed out" else ": unreachable"))
          die net end e
        _ -> pure ()
    wait end = standIn Completed (endWriters end) what limit (attempt end) ask k
    attempt end =
      readIORef (endPhase end) >>= \case
        Connecting -> blocked
        Unconnected -> takeError (endError end) >>= refusal what . fromMaybe eCONNABORTED
        _ -> success ()

-- | Ask for the connection and, if that is lost or not heard, again after a pause, then twice of
-- it.
knock :: Network -> End -> Machine -> Path -> IP -> Port -> Int64 -> IO ()
knock net end there back ip port pause = do
  instant <- arrivalOver world path 0
  void . at (worldEvents world) instant $ do
    wanted <- stillWanted
    when wanted $ do
      up <- readIORef (machineUp there)
      whole <- isPassable path
      lost <- if up && whole then isLossy world path else pure True
      if lost then again "is lost" else listenersAt net there ip port >>= heard
  where
    world = netWorld net
    path = flowPath (endOut end)
    told text = note world (endName end <> " -> " <> show there <> " " <> show (endRemote end) <> ": connection request " <> text)
    stillWanted = do
      closed <- isSet (endFlags end) Closed
      here <- isThere end
      phase <- readIORef (endPhase end)
      pure $ case phase of
        Connecting -> here && not closed
        _ -> False
    again text = do
      told (text <> "; it is repeated in " <> show (pause `div` 1_000_000) <> " ms")
      void . after (worldEvents world) pause $ do
        wanted <- stillWanted
        when wanted (knock net end there back ip port (2 * pause))
    heard [] = do
      told "is refused"
      instant <- arrivalOver world back 0
      void . at (worldEvents world) instant $ do
        wanted <- stillWanted
        whole <- isPassable back
        lost <- if whole then isLossy world back else pure True
        when wanted $ if lost then again "was refused, and that is lost" else die net end eCONNREFUSED
    heard listeners = do
      -- Among sockets that share an address the world decides.
      i <- below (worldRandom world) (length listeners)
      let s = listeners !! i
      readIORef (sockRole s) >>= \case
        Listening l -> do
          room <- hasRoom l
          if not room
            then again "finds the backlog full"
            else do
              told "is heard"
              modifyIORef' (listenerPending l) (+ 1)
              limit <- bufferOf net s
              setWord (flowWords (endIn end)) Capacity limit
              let local = toProgram (sockFamily s) ip port
                  remote = sameIn (sockFamily s) (endLocal end)
              server <- newEnd there local remote (endOut end) (endIn end) (Just end) (HalfOpen l)
              writeIORef (endPeer end) (Just server)
              push net server Opened
        _ -> again "is lost"
    sameIn family address = either (const address) (uncurry (toProgram family)) (fromProgram (familyOf address) address)

connectUnix :: Network -> Sock -> String -> Maybe Int64 -> Answering ()
connectUnix net s path limit ask k = do
  socketAt net here path >>= \case
    Left e -> refuse what e ask k
    Right other ->
      readIORef (sockRole other) >>= \case
        Listening l -> standIn Completed (listenerConnecting l) what limit (attempt l other) ask k
        Datagrams _ -> refuse what ePROTOTYPE ask k
        _ -> refuse what eCONNREFUSED ask k
  where
    here = sockMachine s
    address = SockAddrUnix path
    what = "connect to " <> showAddress address
    attempt l other = do
      open <- isOpenSock net s
      gone <- readIORef (listenerClosed l)
      room <- hasRoom l
      if
        | not open -> refusal what canceled
        | gone -> refusal what eCONNREFUSED
        | not room -> blocked
        | otherwise -> do
            own <- pathName s
            outgoing <- bufferOf net s >>= newFlow Through
            incoming <- bufferOf net other >>= newFlow Through
            end <- newEnd here own address incoming outgoing Nothing Established
            server <- newEnd here address own outgoing incoming (Just end) Established
            writeIORef (endPeer end) (Just server)
            writeIORef (sockRole s) (Streaming end)
            modifyIORef' (listenerQueue l) (|> server)
            note (netWorld net) (show here <> ": connected to " <> showAddress address)
            serve (listenerAccepting l)
            success ()

-- | Take the oldest connection, with a descriptor for it.
--
-- An error that is not the caller's fault is not reported to it: it goes on waiting, as the real kernel has it
-- do. When the machine has no descriptor left the operator is told, once a minute.
acceptFrom :: Network -> Sock -> Listener -> Maybe Int64 -> Answering (Socket, SockAddr)
acceptFrom net s l limit ask k = do
  told <- newIORef False
  standIn Accepted (listenerAccepting l) "accept" limit (attempt told) ask k
  where
    world = netWorld net
    machine = sockMachine s
    attempt told =
      readIORef (listenerQueue l) >>= \case
        Empty -> blocked
        end :<| others -> do
          stumbles <- chance (worldRandom world) (acceptErrors (worldConditions world))
          if stumbles
            then do
              note world (show machine <> ": an accept on " <> showAddress (listenerAddress l) <> " fails in passing")
              d <- within (worldRandom world) (0, 1_000_000)
              now <- clock (worldEvents world)
              -- The connection is still there: it is not missed for a limit that comes before.
              if maybe False (<= now + d) limit
                then attempt told
                else blocked <* after (worldEvents world) d (serve (listenerAccepting l))
            else
              takeDescriptor world machine >>= \case
                Nothing -> starve told >> blocked
                Just d -> do
                  writeIORef (listenerQueue l) others
                  options <- readIORef (sockOptions s)
                  let bound = case endLocal end of
                        SockAddrUnix path -> BoundPath path Nothing
                        local -> either (const Unbound) (uncurry BoundWith) (fromProgram (sockFamily s) local)
                  sock <- newSock d machine (sockFamily s) (sockType s) options bound (Streaming end)
                  enlist (netThings net) machine d (ThingSocket sock)
                  case bound of
                    BoundWith _ port -> countAccepted net sock port 1
                    _ -> pure ()
                  note world (endName end <> ": accepted the connection from " <> show (endRemote end))
                  sweep (listenerConnecting l)
                  success (Socket d (sockFamily s) (sockType s), endRemote end)
    -- Tried again when a descriptor of the machine is closed.
    starve told = do
      before <- readIORef told
      unless before $ do
        writeIORef told True
        now <- clock (worldEvents world)
        runShort (machineShortage machine) (fromIntegral now) (hostReport (askHost ask)) $
          show machine <> ": no descriptor left for a new connection; accepting goes on when one is free"
      note world (show machine <> ": no descriptor left for a connection on " <> showAddress (listenerAddress l))
      starving <- readIORef (listenerStarving l)
      unless starving $ do
        writeIORef (listenerStarving l) True
        modifyIORef' (machineStarved machine) ((writeIORef (listenerStarving l) False >> serve (listenerAccepting l)) :)

listenerReady :: Listener -> Attempt ()
listenerReady l = do
  waiting <- readIORef (listenerQueue l)
  if Seq.null waiting then blocked else success ()

listenerGone :: Listener -> Attempt ()
listenerGone l = do
  gone <- readIORef (listenerClosed l)
  if gone then refusal "wait" canceled else blocked
