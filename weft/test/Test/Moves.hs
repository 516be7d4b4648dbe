-- |
-- Description : Loops whose receive stands, and that move to another worker
--
-- What the former worker keeps of such a loop is used no more, and wakes it some times at most; the
-- loop is served where it is, and is cancelled and closed there.
module Test.Moves (tests) where

import Control.Concurrent qualified as Ghc
import Control.Exception qualified as Exception
import Control.Monad
import Data.ByteString.Char8 qualified as BC
import Data.Text qualified as Text
import GHC.Clock (getMonotonicTimeNSec)
import Network.Socket qualified as N
import Network.Socket.ByteString qualified as NB
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check (eCANCELED)
import Weft.Counters
import Weft.Internal.Core.Trace (Home (..), internal)
import Weft.Socket

tests :: TestTree
tests =
  testGroup
    "Standing receives that move between workers"
    [ testCase (name <> ", " <> show backend) (moving backend end)
      | backend <- [Epoll, Uring, Poll],
        (name, end) <- [("closed", Closes), ("cancelled", Cancels), ("the peer ends", Ends)]
    ]

-- | What happens to the loop after its last move.
data End = Closes | Cancels | Ends
  deriving stock (Eq)

-- | There and back, and there again; each answer says where the loop runs.
moving :: BackendChoice -> End -> Assertion
moving backend end = do
  spurious <- runWith (settingsFor (Config backend 2)) {settingCarriers = 0, settingSlice = 1} . withSocket (listenTcp (Just "127.0.0.1") "0" 1) $ \listener -> do
    port <- boundPort listener
    -- It must wake no worker: a thread of GHC's.
    peer <- liftIO (N.socket N.AF_INET N.Stream N.defaultProtocol)
    liftIO (N.setSocketOption peer N.NoDelay 1 >> N.connect peer (N.SockAddrInet port (N.tupleToHostAddress (127, 0, 0, 1))))
    (s, _) <- accept listener
    ended <- newGate
    t <- forkWith defaultForkOptions {forkWorker = Just 0} (try (serve s) >>= openGate ended)
    let asks = outside . replicateM 20 . ask peer
        -- How often the worker sleeps while the loop on the other one has this number of requests.
        sleeps place count = do
          before <- slept place
          places <- outside (replicateM count (ask peer 'x'))
          after' <- slept place
          pure (places, after' - before)
    asks 'x' >>= liftIO . (@?= replicate 20 0)
    found <- forM [1, 0, 1] $ \there -> do
      outside (ask peer 'm') >>= liftIO . (@?= there)
      -- After these the former worker is told no more.
      asks 'x' >>= liftIO . (@?= replicate 20 there)
      (places, n) <- sleeps (1 - there) requests
      liftIO (places @?= replicate requests there)
      pure n
    -- It answers before it waits again, and a receive that begins after the close fails in another way.
    _ <- dumpUntil (Text.pack "receive up to" `Text.isInfixOf`)
    case end of
      Closes -> closeSocket s
      Cancels -> cancel t
      Ends -> liftIO (N.shutdown peer N.ShutdownSend)
    result <- waitGate ended
    case (end, result) of
      (Closes, Left e) -> failsWith [eCANCELED] (throwM e)
      (Cancels, Left e) | Just Cancelled <- Exception.fromException e -> do
        -- What comes now is another's.
        outside (NB.sendAll peer (BC.pack "on"))
        receive s 10 >>= liftIO . (@?= BC.pack "on")
      (Ends, Right ()) -> pure ()
      _ -> liftIO (assertFailure (either Exception.displayException (const "it ended") result))
    closeSocket s
    liftIO (N.close peer)
    pure found
  -- Some sleeps are those of the thread that counts them.
  assertBool ("the former worker slept " <> show spurious <> " times in " <> show requests <> " requests") (all (< requests `div` 4) spurious)
  where
    requests = 200

-- | Run an action on a thread of GHC's.
outside :: IO a -> Thread a
outside act = do
  done <- liftIO Ghc.newEmptyMVar
  _ <- liftIO (Ghc.forkIO (Exception.try act >>= Ghc.putMVar done))
  blocking (Ghc.takeMVar done) >>= either (\e -> throwM (e :: Exception.SomeException)) pure

-- | Send a byte: where the loop runs that answers.
ask :: N.Socket -> Char -> IO Int
ask peer c = do
  NB.sendAll peer (BC.singleton c)
  read . BC.unpack <$> NB.recv peer 1

slept :: Int -> Thread Int
slept worker = countedSleeps . (!! worker) . countersWorkers <$> counters

here :: Thread Int
here = internal (\home _ -> pure (homeWorker home))

-- | Answer each byte; move before that to an @m@.
serve :: Socket -> Thread ()
serve s = receiveEach s 16 $ \bytes -> case BC.unpack bytes of
  "x" -> answer
  "m" -> here >>= elsewhere >> answer
  "" -> pure (Just ())
  other -> liftIO (assertFailure ("it has received " <> show other))
  where
    answer = here >>= \place -> Nothing <$ sendAll s (BC.pack (show place))

-- | Compute beside others that do, until this thread has moved: half of those that are ready are given to a worker that
-- sleeps.
elsewhere :: Int -> Thread ()
elsewhere place = do
  others <- replicateM 8 . spawnOn (Just place) $ turns
  turns
  sequence_ others
  now' <- here
  when (now' == place) (elsewhere place)
  where
    turns = replicateM_ 20 (liftIO compute >> yield)
    compute = do
      start <- getMonotonicTimeNSec
      let go = getMonotonicTimeNSec >>= \t -> when (t - start < 30_000) go
      go
