{-# LANGUAGE MultiWayIf #-}

-- |
-- Description : The calls of sockets, with Linux's results
--
-- As far as packetdrill asks for them. Nothing blocks here: a call that would have to wait answers
-- 'again', and the caller tries anew when something has changed.
module Sockets
  ( again,
    socketCall,
    bindCall,
    listenCall,
    acceptCall,
    peerOf,
    connectCall,
    connected,
    receiveCall,
    sendCall,
    shutdownCall,
    closeCall,
    lingers,
    lingering,
    getOption,
    setOption,
    inQueue,
    pollMask,
    tcpInfo,
  )
where

import Control.Monad (forM_, unless, when)
import Control.Monad.State.Strict (gets, modify', state)
import Data.Bits ((.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (toList)
import Data.IntMap.Strict qualified as I
import Data.Map.Strict qualified as M
import Data.Maybe (fromMaybe, isJust)
import Data.Word (Word16, Word32)
import Foreign.C.Error (Errno (..))
import Machine
import Options
import Weft.Tcp.Connection
import Weft.Tcp.Internal.Tcb
import Weft.Tcp.Options
import Weft.Tcp.Packet
import Weft.Tcp.Segment
import Weft.Tcp.Sequence

-- | The call has to wait: EAGAIN, negated as all failures are.
again :: Int
again = -11

withSocket :: Int -> (Socket -> Sim Int) -> Sim Int
withSocket fd f = gets (I.lookup fd . wSockets) >>= maybe (pure (-eBadF)) f

setSocket :: Int -> Socket -> Sim ()
setSocket fd x = modify' (\w -> w {wSockets = I.insert fd x (wSockets w)})

-- | A socket with this descriptor.
socketCall :: Int -> Sim ()
socketCall fd = setSocket fd (Socket Fresh noValues Nothing)

-- | Take a name.
bindCall :: Int -> Address -> Word16 -> Sim Int
bindCall fd a port = withSocket fd $ \x -> do
  taken <- gets (any (\(k, y) -> k /= fd && fmap snd (sLocal y) == Just port && (isListening y || not (reuses y && reuses x))) . I.toList . wSockets)
  if
    | isJust (sLocal x) -> pure (-eInval)
    | taken && port /= 0 -> pure (-eAddrInUse)
    | otherwise -> do
        port' <- if port /= 0 then pure port else ephemeral
        0 <$ setSocket fd x {sLocal = Just (a, port')}
  where
    reuses y = optionOf (1, 2) y == Just 1

ephemeral :: Sim Word16
ephemeral = state (\w -> (fromIntegral (wPort w), w {wPort = wPort w + 1}))

-- | Wait for connections.
listenCall :: Int -> Int -> Sim Int
listenCall fd backlog = withSocket fd $ \x -> case sKind x of
  Attached _ -> pure (-eInval)
  Listening _ q -> 0 <$ setSocket fd x {sKind = Listening backlog q}
  Fresh -> do
    local <- maybe ((,) (Address4 0) <$> ephemeral) pure (sLocal x)
    0 <$ setSocket fd x {sKind = Listening backlog [], sLocal = Just local}

-- | Take a connection from the queue, for this descriptor.
acceptCall :: Int -> Int -> Sim Int
acceptCall fd new' = withSocket fd $ \x -> case sKind x of
  Listening n (i : rest) -> do
    setSocket fd x {sKind = Listening n rest}
    c <- getConn i
    setConn i c {cOwner = Just new', cParent = Nothing}
    setSocket new' x {sKind = Attached i, sLocal = Just (cLocal c)}
    pure new'
  Listening {} -> pure again
  _ -> pure (-eInval)

-- | The name of the peer.
peerOf :: Int -> Sim (Maybe (Address, Word16))
peerOf fd = gets $ \w -> do
  x <- I.lookup fd (wSockets w)
  case sKind x of
    Attached i -> cRemote <$> I.lookup i (wConns w)
    _ -> Nothing

-- | Ask for a connection. The answer is EINPROGRESS where it has begun.
connectCall :: Int -> Address -> Word16 -> Sim Int
connectCall fd a port = withSocket fd $ \x -> case sKind x of
  Listening {} -> pure (-eIsConn)
  Attached i -> do
    c <- getConn i
    if
      | cError c /= 0 -> -cError c <$ (setConn i c {cError = 0} >> setSocket fd x {sKind = Fresh})
      | tcbState (cTcb c) `elem` [SynSent, SynReceived] -> pure (-eAlready)
      | tcbState (cTcb c) == Closed -> setSocket fd x {sKind = Fresh} >> connectCall fd a port
      | otherwise -> pure (-eIsConn)
  Fresh -> do
    local <- case sLocal x of
      Just (h, p) -> pure (h, p)
      Nothing -> (,) (home a) <$> ephemeral
    now <- gets wNow
    base <- gets wSettings
    let iss = initialSequence 0x71b3c9d5 now
        remote = (a, port)
        st = activeOpen (settingsOf local x base) iss 0 now
    i <- newConn (conn local remote (stepTcb st)) {cOwner = Just fd}
    change i (\c -> c {cOutFrom = iss `advance` 1})
    setSocket fd x {sKind = Attached i, sLocal = Just local}
    apply i (Segment (Seq 0) (Seq 0) mempty 0 0 noOptions 0) B.empty st
    pure (-eInProgress)
  where
    home (Address4 _) = Address4 0xc0a80001
    home _ = Address6 0xfd3dfa7bd17d0000 1
    change i f = modify' (\w -> w {wConns = I.adjust f i (wConns w)})

-- | Has the connection that was asked for come about?
connected :: Int -> Sim Int
connected fd = withConn fd (pure (-eNotConn)) $ \i c ->
  if
    | cError c /= 0 -> -cError c <$ setConn i c {cError = 0}
    | cOpened c -> pure 0
    | tcbState (cTcb c) == Closed -> pure (-eConnAborted)
    | otherwise -> pure again

withConn :: Int -> Sim Int -> (Int -> Conn -> Sim Int) -> Sim Int
withConn fd none f = withSocket fd $ \x -> case sKind x of
  Attached i -> gets (I.lookup i . wConns) >>= maybe none (f i)
  _ -> none

-- | Receive at most the given number of bytes, and leave them where they are if the third argument says so.
-- The fourth is how many there must be; 0 stands for SO_RCVLOWAT.
receiveCall :: Int -> Int -> Bool -> Int -> Sim (Int, ByteString)
receiveCall fd n peek least = do
  x <- gets (I.lookup fd . wSockets)
  case sKind <$> x of
    Nothing -> refused eBadF
    Just (Attached i) -> do
      c <- getConn i
      let there = fromIntegral (readable (cTcb c))
          at = maybe 0 (\first -> fromIntegral (distance first (readableFrom (cTcb c)))) (cFirst c)
          bytes' = gather (min n there) at (cIn c)
          needed = min n (if least > 0 then least else maybe 1 lowWater x)
          final = cEnded c || cReset c || cReadShut c || tcbState (cTcb c) == Closed
      if
        | there > 0 && n > 0 && (there >= needed || final) -> do
            unless peek $ do
              setConn i c {cIn = discard (at + B.length bytes') (cIn c)}
              input (Consumed (fromIntegral (B.length bytes'))) B.empty i
            pure (B.length bytes', bytes')
        | cEnded c -> pure (0, B.empty)
        | cError c /= 0 -> setConn i c {cError = 0} >> refused (cError c)
        | cReadShut c || cReset c || cEnded c || n == 0 -> pure (0, B.empty)
        | tcbState (cTcb c) == Closed -> if cOpened c then pure (0, B.empty) else refused eNotConn
        | otherwise -> pure (again, B.empty)
    _ -> refused eNotConn
  where
    refused e = pure (-e, B.empty)

-- SO_RCVLOWAT
lowWater :: Socket -> Int
lowWater = fromMaybe 1 . optionOf (1, 18)

-- How many bytes a connection takes that the peer has not acknowledged: SO_SNDBUF.
capacity :: Socket -> Int
capacity = fromMaybe usualCapacity . optionOf (1, 7)

usualCapacity :: Int
usualCapacity = 4194304

optionOf :: Option -> Socket -> Maybe Int
optionOf option = valueOf option . sOptions

gather :: Int -> Int -> M.Map Int ByteString -> ByteString
gather n at m
  | n <= 0 = B.empty
  | otherwise = case M.lookupLE at m of
      Just (k, b) | at - k < B.length b -> let piece = B.take n (B.drop (at - k) b) in piece <> gather (n - B.length piece) (at + B.length piece) m
      _ -> B.empty

discard :: Int -> M.Map Int ByteString -> M.Map Int ByteString
discard at = M.filterWithKey (\k b -> k + B.length b > at)

-- | Send bytes: how many were taken. The flag says that more will follow.
sendCall :: Int -> ByteString -> Bool -> Sim Int
sendCall fd bytes' more = withConn fd (pure (-ePipe)) $ \i c -> do
  most <- gets (maybe usualCapacity capacity . I.lookup fd . wSockets)
  let t = cTcb c
      free = most - B.length (cOut c)
      taken = if tcbState t `elem` [SynSent, SynReceived] then 0 else min free (B.length bytes')
      piece = B.take taken bytes'
  if
    | cError c /= 0 -> -cError c <$ setConn i c {cError = 0}
    | cWriteShut c || cReset c || tcbState t == Closed -> pure (-ePipe)
    | not (cOpened c) -> pure again
    | B.null bytes' -> pure 0
    | taken <= 0 -> pure again
    | otherwise -> do
        setConn i c {cOut = cOut c <> piece}
        input (if more then WroteMore (fromIntegral taken) else Wrote (fromIntegral taken)) B.empty i
        pure taken

-- | Shut down reading (0), writing (1) or both (2).
shutdownCall :: Int -> Int -> Sim Int
shutdownCall fd how = withSocket fd $ \x -> case sKind x of
  _ | how < 0 || how > 2 -> pure (-eInval)
  Fresh -> pure (-eNotConn)
  Listening _ q
    | how == 1 -> pure 0
    | otherwise -> 0 <$ (endListener fd q >> setSocket fd x {sKind = Fresh})
  Attached i -> do
    c <- getConn i
    if
      | tcbState (cTcb c) `elem` [Closed, TimeWait] -> pure (-eNotConn)
      | tcbState (cTcb c) == SynSent -> do
          input Abort B.empty i
          setSocket fd x {sKind = Fresh}
          pure 0
      | otherwise -> do
          setConn i c {cReadShut = cReadShut c || how /= 1, cWriteShut = cWriteShut c || how /= 0}
          when (how /= 1) (input ShutRead B.empty i)
          when (how /= 0) (input Shutdown B.empty i)
          pure 0

-- | Close the descriptor.
closeCall :: Int -> Sim Int
closeCall fd = withSocket fd $ \x -> do
  case sKind x of
    Fresh -> pure ()
    Listening _ q -> endListener fd q
    Attached i -> do
      c <- getConn i
      setConn i c {cOwner = Nothing}
      input (if optionOf (1, 13) x == Just 0 then Abort else Close) B.empty i
      ended <- gets (maybe True ((== Closed) . tcbState . cTcb) . I.lookup i . wConns)
      when ended (drop' i)
  0 <$ modify' (\w -> w {wSockets = I.delete fd (wSockets w)})

-- | The connection for which a close waits, and for how many seconds.
lingers :: Int -> Sim (Maybe (Int, Int))
lingers fd = gets $ \w -> case I.lookup fd (wSockets w) of
  Just x | Attached i <- sKind x, Just n <- optionOf (1, 13) x, n > 0 -> Just (i, n)
  _ -> Nothing

-- | Has this connection, which was closed, something that is not acknowledged?
lingering :: Int -> Sim Bool
lingering i = gets (maybe False ((`elem` [FinWait1, Closing, LastAck]) . tcbState . cTcb) . I.lookup i . wConns)

-- Connections that will not be accepted are reset; a half-open connection is forgotten.
endListener :: Int -> [Int] -> Sim ()
endListener fd q = do
  forM_ q $ \i -> getConn i >>= \c -> setConn i c {cParent = Nothing} >> input Abort B.empty i >> drop' i
  modify' (\w -> w {wConns = I.filter ((/= Just fd) . cParent) (wConns w)})

-- | The value of an option of level and number; nothing if the descriptor is no socket.
getOption :: Int -> Int -> Int -> Sim (Maybe Int)
getOption fd level name = gets (I.lookup fd . wSockets) >>= traverse value
  where
    value x = case (sKind x, (level, name)) of
      -- SO_ERROR
      (Attached i, (1, 4)) -> do
        c <- getConn i
        cError c <$ setConn i c {cError = 0}
      (_, (1, 4)) -> pure 0
      -- SO_ACCEPTCONN
      (Listening {}, (1, 30)) -> pure 1
      -- SO_SNDBUF
      (_, (1, 7)) -> pure (capacity x)
      (Attached i, option) -> do
        t <- cTcb <$> getConn i
        pure (fromMaybe (kept (tcbSettings t) option) (connectionValue option t))
      (_, option) -> gets (\w -> kept (wSettings w) option)
      where
        kept settings option = either failing id (getValue settings option (sOptions x))

-- | Set an option; of SO_LINGER the value is the time, or negative.
setOption :: Int -> Int -> Int -> Int -> Sim Int
setOption fd level name value = withSocket fd $ \x -> case setValue (level, name) value (sOptions x) of
  Left e -> pure (failing e)
  Right values -> do
    let x' = x {sOptions = values}
    setSocket fd x'
    base <- gets wSettings
    case sKind x of
      Attached i -> do
        c <- getConn i
        forM_ (tuning (level, name) value (retuned values (settingsOf (cLocal c) x' base) (tcbSettings (cTcb c)))) (\what -> input what B.empty i)
      _ -> pure ()
    pure 0

failing :: Errno -> Int
failing (Errno e) = negate (fromIntegral e)

-- | How many bytes may be read, how many were not acknowledged, and how many not sent.
inQueue :: Int -> Sim (Maybe (Int, Int, Int))
inQueue fd = gets $ \w -> do
  x <- I.lookup fd (wSockets w)
  case sKind x of
    Attached i -> do
      c <- I.lookup i (wConns w)
      let t = cTcb c
      pure (fromIntegral (readable t), B.length (cOut c), fromIntegral (unsent t))
    _ -> Nothing

-- | The answer of poll for a descriptor.
pollMask :: Int -> Sim Int
pollMask fd = gets $ \w -> case I.lookup fd (wSockets w) of
  Nothing -> 0x20
  Just x -> case sKind x of
    Fresh -> 0x10 .|. 0x4 .|. 0x100
    Listening _ q -> if null q then 0 else 0x1 .|. 0x40
    Attached i -> maybe 0x10 (mask x) (I.lookup i (wConns w))
  where
    mask x c =
      foldr
        (.|.)
        0
        ( [0x8 | cError c /= 0]
            ++ [0x10 | tcbState t == Closed || (cReadShut c || cEnded c) && cWriteShut c]
            ++ [0x1 .|. 0x40 .|. 0x2000 | cReadShut c || cEnded c || cReset c]
            ++ [0x1 .|. 0x40 | readable t > 0, fromIntegral (readable t) >= lowWater x]
            ++ [0x4 .|. 0x100 | cOpened c, cWriteShut c || cReset c || 3 * B.length (cOut c) < 2 * capacity x]
        )
      where
        t = cTcb c

-- | The numbers of TCP_INFO that scripts look at, in the order that the C part expects.
tcpInfo :: Int -> Sim [Word32]
tcpInfo fd = gets $ \w ->
  toList (I.lookup fd (wSockets w)) >>= \x -> case sKind x of
    Attached i -> maybe [] (information . cTcb) (I.lookup i (wConns w))
    _ -> []
