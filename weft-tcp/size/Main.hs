-- |
-- Description : How much memory connections take
--
-- A hundred thousand connections at rest with all options, each in a variable and a slot of a
-- table, and the live bytes that they add; as many half-open connections of a stack, with what the stack
-- knows of them; and as many that are in TIME-WAIT. It fails above the figures that the README promises.
module Main (main) where

import Control.Monad (forM_, unless, void, when)
import Data.Array.IO (IOArray, IOUArray, newArray, newArray_, readArray, writeArray)
import Data.ByteString qualified as B
import Data.IORef
import Data.List qualified as List
import Data.Maybe (fromMaybe)
import Data.Word (Word32)
import GHC.Stats
import Network.Socket (Family (AF_INET), SocketType (Stream))
import System.Environment (getArgs, getExecutablePath)
import System.Exit (die)
import System.Mem (performMajorGC)
import System.Process (callProcess)
import Weft.Internal.Data.Timers qualified as Timers
import Weft.Tcp.Connection
import Weft.Tcp.Device
import Weft.Tcp.Info (infoOf)
import Weft.Tcp.Internal.Small (Resting, fromResting, restingOf)
import Weft.Tcp.Packet
import Weft.Tcp.Segment hiding (Malformed)
import Weft.Tcp.Sequence
import Weft.Tcp.Stack
import Weft.Tcp.Stack.Arrivals (packetFrom)
import Weft.Tcp.Stack.Ask (Verdict (..))
import Weft.Tcp.Stack.Calls (newStack)
import Weft.Tcp.Stack.Closing
import Weft.Tcp.Stack.Listening
import Weft.Tcp.Stack.Names (toSockAddr)
import Weft.Tcp.Stack.Sockets
import Weft.Tcp.Stack.State (Stack (stackTimers))

-- Established, and one exchange each way.
idle :: Int -> Tcb
idle n = List.foldl' (\t (now, i) -> stepTcb (step now i t)) begun inputs
  where
    iss = Seq (fromIntegral n)
    first = Seq (fromIntegral n * 7)
    begun = maybe (error "no SYN") stepTcb (passiveOpen defaultSettings iss 0 0 (segment first 0 syn offered 0))
    segment at a f = Segment at (Seq a) f 500 0
    one = first `advance` 1
    inputs =
      [ (100, Arrived (segment one (fromIntegral n + 1) ack (stamped 2) 0)),
        (200, Arrived (segment one (fromIntegral n + 1) (ack <> psh) (stamped 3) 100)),
        (210, Consumed 100),
        (220, Wrote 200),
        (400, Arrived (segment (one `advance` 100) (fromIntegral n + 201) ack (stamped 4) 0))
      ]

offered :: Options
offered = Options (Just 1460) (Just 7) True (Just (Timestamps 1 0)) [] Nothing

stamped :: Word32 -> Options
stamped v = noOptions {optionTimestamps = Just (Timestamps v 0)}

-- Each measurement has a process of its own, in which nothing else becomes free.
main :: IO ()
main =
  getArgs >>= \case
    ["idle"] -> idles
    ["half-open"] -> halves
    ["time-wait"] -> waits
    _ -> getExecutablePath >>= \self -> forM_ ["idle", "half-open", "time-wait"] (\what -> callProcess self [what])

idles :: IO ()
idles = do
  table <- newArray_ (0, amount - 1) :: IO (IOArray Int (IORef Resting))
  adds "a connection at rest" 165 $ everyone (\n -> writeArray table n =<< (newIORef $! fromMaybe (error "not at rest") (restingOf (idle n))))
  -- The table lives until here, and holds what was meant.
  everyone $ \n -> do
    t <- readIORef =<< readArray table n
    when (tcbState (fromResting t) /= Established) (die "not all are established")

halves, waits :: IO ()
halves = do
  x <- newSite
  adds "a half-open connection" 200 (everyone (open x))
  counted x
waits = do
  x <- newSite
  adds "a connection in TIME-WAIT" 200 . everyone $ \n -> do
    open x n
    comes x n ack 8 0
    closes x n
    comes x n (ack <> fin) 8 1
  counted x

-- Without a list, which would live on.
everyone :: (Int -> IO ()) -> IO ()
everyone act = go 0
  where
    go n = when (n < amount) (act n >> go (n + 1))

amount :: Int
amount = 100000

-- | A stack without threads, with a listener.
data Site = Site
  { -- | A segment of a peer: with its number, and how much more it acknowledges than the stack's SYN.
    comes :: Int -> Flags -> Word32 -> Word32 -> IO (),
    -- | Accept, and close.
    closes :: Int -> IO (),
    -- | A SYN, and its answer.
    open :: Int -> IO (),
    -- | All are there. The stack lives until then, with all tables and timers.
    counted :: IO ()
  }

newSite :: IO Site
newSite = do
  starts <- newArray (0, amount - 1) 0 :: IO (IOUArray Int Word32)
  latest <- newIORef 0
  let device = noDevice {deviceSend = mapM_ (writeIORef latest $!) . numberIn}
  st <- newStack (defaultTcpSettings (pure device) [own]) {tcpMostHalfOpen = amount} device
  l <- given =<< openSock st AF_INET Stream
  given =<< bindSock st l (toSockAddr AF_INET own 80)
  given =<< listenSock st l amount
  let send n f number further = do
        start <- readArray starts n
        let options = if f == syn then offered else stamped 2
            segment = Segment (Seq number) (Seq (start + 1 + further)) f 500 0 options 0
        packetFrom False st Nothing (fromIntegral n) (packetOf n segment)
  pure
    Site
      { comes = send,
        closes = \n -> do
          (s, _) <- given =<< acceptSock st l Nothing Nothing (fromIntegral n)
          void (given =<< closeSock st s Nothing (fromIntegral n)),
        open = \n -> send n syn 7 0 >> readIORef latest >>= writeArray starts n,
        counted = do
          there <- subtract 1 . length <$> infoOf st
          timers <- Timers.foldM (\n _ _ -> pure (n + 1)) 0 (stackTimers st)
          unless ((there, timers) == (amount, amount)) (die ("connections and timers: " <> show (there, timers)))
      }
  where
    given :: Verdict a -> IO a
    given = \case
      Answer a -> pure a
      _ -> die "a call failed"

own :: Address
own = Address4 0x0a090002

-- From one of many hosts.
packetOf :: Int -> Segment -> B.ByteString
packetOf n s = buildPacket (Packet peer own protocolTcp 64 0 0 (buildSegment peer own (Ports 4000 80) s B.empty))
  where
    peer = Address4 (0x0b000000 + fromIntegral n)

numberIn :: B.ByteString -> Maybe Word32
numberIn packet = case parsePacket packet of
  Right p | Right (_, s, _) <- parseSegment (packetSource p) (packetTarget p) (packetPayload p), Seq n <- segmentSeq s -> Just n
  _ -> Nothing

-- How many live bytes each of them adds.
adds :: String -> Double -> IO () -> IO ()
adds what most make = do
  start <- liveBytes
  make
  end <- liveBytes
  let each = (fromIntegral end - fromIntegral start) / fromIntegral amount :: Double
  putStrLn ("bytes of " <> what <> ": " <> show each)
  when (each > most) (die "that is too much")
  where
    liveBytes = do
      performMajorGC
      gcdetails_live_bytes . gc <$> getRTSStats
