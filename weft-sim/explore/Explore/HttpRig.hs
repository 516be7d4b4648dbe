{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The server that scenarios are about, and its surroundings
--
-- A directory on the disk of the home machine, a server for it, machines for clients. What the
-- server promises to every client is checked here: it drains in its time, and leaves no
-- connection open.
module Explore.HttpRig
  ( -- * Worlds
    Weather (..),
    weatherOf,
    weathered,
    inWeather,

    -- * The server
    Rig (..),
    Setup (..),
    defaultSetup,
    answering,
    drawnSetup,
    serving,
    servingBy,
    headTime,
    reportsOf,
    within,
    ask,
    askWith,
    body200,

    -- * Files
    site,
    fileOf,
    noise,
    putFile,

    -- * Clients
    onNewMachine,
    gather,
  )
where

import Control.Monad (forM, forM_, join, unless)
import Data.Bits (shiftR, xor, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.Int (Int64)
import Data.Map.Strict qualified as Map
import Data.Maybe (fromMaybe)
import Data.Primitive.PrimVar (readPrimVar)
import Data.Text (Text)
import Explore.Draw
import Explore.HttpClient
import Explore.Scenario
import System.IO.Unsafe (unsafePerformIO)
import Weft
import Weft.File hiding (OpenMode (Directory))
import Weft.Http.Negotiation (Coding (..))
import Weft.Http.Server hiding (Conditions, Server)
import Weft.Http.Server.State (Open (..), Server (..))
import Weft.Http.Server.Types (readClock, tickSecond)
import Weft.Http.Static
import Weft.Local
import Weft.Scope
import Weft.Sim hiding (Exception)
import Weft.Socket
import Weft.Time

-- | The conditions of the network around a server.
data Weather
  = Calm
  | Rough
  | -- | Small buffers, short sends, accepts that fail; no connection is lost.
    Tight
  | -- | As 'Tight', and connections are reset now and then.
    Stormy
  deriving stock (Eq, Show)

weatherOf :: Seed -> Weather
weatherOf (Seed n) = case (n `shiftR` 3) .&. 3 of
  0 -> Calm
  1 -> Rough
  2 -> Tight
  _ -> Stormy

conditionsOf :: Weather -> Conditions
conditionsOf = \case
  Calm -> calm
  Rough -> rough
  Tight -> tight
  Stormy -> tight {connectionResets = 0.01}
  where
    tight = rough {shortSends = 0.4, streamBuffer = 2_000, acceptErrors = 0.1, lateCompletions = 0.6, lateCancellations = 0.7, stalls = 0.3, stallTime = (mempty, milliseconds 5)}

-- | A scenario in the weather of its seed.
weathered :: String -> String -> (Seed -> Thread Complaints) -> Scenario
weathered name about program =
  (scenarioOf name about program) {scenarioConfig = \seed -> inWeather (weatherOf seed) (configOf seed)}
  where
    scenarioOf n a p = (drawn n a (pure (pure []))) {scenarioProgram = p}

-- | A run in this weather.
inWeather :: Weather -> Config -> Config
inWeather weather config = config {configConditions = conditionsOf weather, configMaxSteps = 3_000_000}

-- | A running server.
data Rig = Rig
  { rigServer :: !Server,
    rigListener :: !Socket,
    rigAddress :: !SockAddr,
    -- | Its reports to the operator.
    rigReports :: !(IORef [String]),
    -- | Drain it, within the limits of its grace period; complaints if it takes longer.
    rigDrain :: Thread (Bool, Complaints)
  }

-- | How it is set up.
data Setup = Setup
  { setupServer :: ServerSettings -> ServerSettings,
    setupStatic :: StaticSettings -> StaticSettings,
    -- | Around the handler that serves files.
    setupHandler :: Handler -> Handler,
    -- | In place of the handler.
    setupApplication :: Maybe Application,
    -- | In place of the handler, in plain 'IO'.
    setupPlain :: Maybe PlainApplication,
    -- | The files there are.
    setupSite :: [(ByteString, ByteString)]
  }

-- | As it comes.
defaultSetup :: Setup
defaultSetup = Setup id id id Nothing Nothing site

-- | Without files, with this handler.
answering :: Handler -> Setup
answering handler = defaultSetup {setupHandler = const handler, setupSite = []}

-- | Sometimes nothing is kept in memory, or open, and the files are sent from the disk.
drawnSetup :: Seed -> Setup
drawnSetup seed = draw seed $ do
  cache <- oneOf (map pure [0, 10_000, 100_000_000])
  largest <- oneOf (map pure [100, 50_000, 1_000_000])
  open <- oneOf (map pure [0, 1, 1000])
  copied <- oneOf (map pure [0, 8192])
  pure defaultSetup {setupStatic = \s -> s {staticCacheBytes = cache, staticLargestCached = largest, staticOpenFiles = open, staticLargestCopied = copied, staticPrecompressed = [Gzip]}}

-- | Serve the files while the body runs; then drain, and look that nothing is left.
serving :: Setup -> (Rig -> Thread Complaints) -> Thread Complaints
serving setup body = servingBy setup $ \rig -> withScope $ \scope -> do
  _ <- forkIn scope (serve (rigServer rig) (rigListener rig))
  wrong <- body rig
  (ended, late) <- rigDrain rig
  pure (wrong <> late <> expect "drained without cutting anybody off" ended)

-- | What servers give to a head at least. Over links that lose a tenth of the packets a request of one segment may need longer than by
-- default, if its SYN was lost, too: it then goes again after three seconds, 9, 21 and 45.
headTime :: Local Duration
headTime = unsafePerformIO (newInheritedLocal mempty)
{-# NOINLINE headTime #-}

-- | 'serving' where the body sees to accepting and draining. The server must have no
-- connection at the end.
servingBy :: Setup -> (Rig -> Thread Complaints) -> Thread Complaints
servingBy setup body = do
  _ <- attempt (makeDirectory "/www")
  forM_ (setupSite setup) (uncurry putFile)
  reports <- liftIO (newIORef [])
  bracket (retrying (openStatic (setupStatic setup (defaultStaticSettings "/www")))) closeStatic $ \static ->
    bracket (openSocket AF_INET Stream) closeSocket $ \listener -> do
      home <- addressOfHome
      bind listener (SockAddrInet 80 0)
      listen listener 1024
      least <- getLocal headTime
      let given = setupServer setup defaultServerSettings {serverReport = \text -> modifyIORef' reports (text :)}
          settings = given {serverTimeouts = (serverTimeouts given) {timeoutHead = max least (timeoutHead (serverTimeouts given))}}
      ticks <- liftIO (newIORef (pure 0))
      server <- case (setupApplication setup, setupPlain setup) of
        (Just application, _) -> newServerWith settings (const application)
        (_, Just application) -> newServerPlain settings (const application)
        -- A file is at hand only when another handler has put it into the cache.
        _ -> newServerAtHand settings $ \clock ->
          (,) (staticAtHand static clock) . setupHandler setup $ \request -> do
            liftIO (writeIORef ticks (tickSecond <$> readClock clock))
            staticHandler static clock request
      wrong <- body (Rig server listener home reports (draining server listener (serverGrace settings)))
      left <- liftIO (connectionCount server)
      sleep (seconds 2)
      before <- liftIO (join (readIORef ticks))
      sleep (seconds 3)
      after' <- liftIO (join (readIORef ticks))
      counts <- liftIO (accounts server)
      pure (wrong <> expectEqual "connections at the end" 0 left <> expect "its clock stops with the server" (before == after') <> counts)
  where
    draining server listener grace = do
      (ended, took) <- timed (drain server [listener])
      pure (ended, expect ("drained within the grace period, and not after " <> show took) (took <= grace <> milliseconds 1_500))
    -- Opening the directory is not what is tested.
    retrying act = attempt act >>= either (const (retrying act)) pure

-- | Nothing that is counted is left.
accounts :: Server -> IO Complaints
accounts server = do
  open <- readIORef (serverConnections server)
  busy <- readPrimVar (serverBusy server)
  pure
    ( concat
        [ expectEqual "connections in the register" 0 (length (openConnections open)),
          expectEqual "connections of peers" [] (Map.toList (openPeers open)),
          expectEqual "connections that are refused" 0 (openRefusing open),
          expectEqual "holders of the server" 0 (openHeld open),
          expectEqual "handlers at work" 0 busy,
          expect "the ticker has ended" (not (openTicking open))
        ]
    )

-- | The reports to the operator, oldest first.
reportsOf :: Rig -> Thread [String]
reportsOf rig = liftIO (reverse <$> readIORef (rigReports rig))

-- | How long something takes, in virtual time.
timed :: Thread a -> Thread (a, Duration)
timed act = do
  begin <- now
  a <- act
  end <- now
  pure (a, begin `since` end)

-- | A sentence, unless it took as long as this says.
within :: String -> (Int64, Int64) -> Thread a -> Thread (a, Complaints)
within what (least, most) act = do
  (a, took) <- timed act
  let ms = durationNanoseconds took `div` 1_000_000
  pure (a, expect (what <> " took " <> show ms <> " ms, and not between " <> show least <> " and " <> show most) (least <= ms && ms <= most))

-- | A request for a target.
ask :: ByteString -> ByteString
ask target = askWith "GET" target []

-- | A request with a method and fields.
askWith :: ByteString -> ByteString -> [ByteString] -> ByteString
askWith method target fields =
  ByteString.concat ([method, " ", target, " HTTP/1.1\r\nHost: sim\r\n"] <> map (<> "\r\n") fields <> ["\r\n"])

-- | Complain about an answer that is not this file, whole.
body200 :: String -> ByteString -> Either End Answer -> Complaints
body200 what content = \case
  Right a -> expectEqual (what <> ": status") 200 (answerStatus a) <> expect (what <> ": the body is the file") (answerBody a == content)
  Left end -> [what <> ": no answer: " <> show end]

-- | The files that are there by default: empty, small, as large as what is
-- kept in memory, larger, and some in directories.
site :: [(ByteString, ByteString)]
site =
  [ ("empty.txt", ""),
    ("small.txt", "a small file\n"),
    ("page.html", noise 1 3_000),
    ("large.bin", noise 2 70_001),
    ("sub/index.html", "<p>sub</p>")
  ]

-- | A file of 'site'.
fileOf :: ByteString -> ByteString
fileOf name = fromMaybe (error ("Explore.HttpRig.fileOf: " <> show name)) (lookup name site)

-- | The given number of bytes that look like nothing else; a number tells them apart.
noise :: Int -> Int -> ByteString
noise salt n = fst (ByteString.unfoldrN n step (salt * 7_919 + 1))
  where
    step x = let y = (x * 1_103_515_245 + 12_345) .&. 0x7fffffff in Just (fromIntegral ((y `shiftR` 16) `xor` salt), y)

-- | Write a file beneath the directory, with the directory that it is in.
putFile :: ByteString -> ByteString -> Thread ()
putFile name content = do
  forM_ (directories name) $ \d -> attempt (makeDirectory ("/www/" <> d))
  withFile ("/www/" <> name) WriteOnly $ \file -> do
    setFileSize file 0
    unless (ByteString.null content) (writeAt file 0 content)
  where
    directories path = case Char8.elemIndexEnd '/' path of
      Just i -> [ByteString.take i path]
      Nothing -> []

-- | Run the body on a new machine.
onNewMachine :: Text -> Thread a -> Thread a
onNewMachine name body = newMachine name >>= \m -> onMachine m body

-- | Run all at a time, and gather what is wrong.
gather :: [Thread Complaints] -> Thread Complaints
gather bodies = withScope $ \scope -> do
  children <- forM (zip [0 ..] bodies) $ \(i, body) ->
    forkInWith scope defaultForkOptions {forkWorker = Just i} body
  concat <$> mapM awaitChild children

-- | The address of this machine's server for others.
addressOfHome :: Thread SockAddr
addressOfHome = SockAddrInet 80 . machineAddress <$> thisMachine
