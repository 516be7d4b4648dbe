-- |
-- Description : Common parts of the network tests
--
-- A simulated world, threads on its machines, and what its network noted. Nothing here is
-- a test.
module Test.Network.Rig
  ( -- * Worlds
    Rig (..),
    inWorld,
    inCalm,
    machine,
    addressOf,

    -- * Threads
    residingAt,
    spawn,
    spawnAt,
    changing,
    pause,

    -- * Streams
    listenAt,
    dial,
    connectedOver,
    receiveAll,
    receiveExactly,
    patternBytes,

    -- * Checks
    is,
    holds,
    failsWith,
    eCANCELED,
  )
where

import Control.Exception (SomeException)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.Text qualified as Text
import Network.Socket (HostAddress)
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check (eCANCELED, failsWith, holds, is)
import Weft.Conformance.Connecting (receiveAll, receiveExactly)
import Weft.Conformance.Waiting (spawn)
import Weft.Internal.Core.Trace (changeContext)
import Weft.Sim.Internal.Kernel
import Weft.Sim.Internal.Network (Network)
import Weft.Sim.Internal.World
import Weft.Socket

-- | A world in which a test runs: its machines "home", "a", "b" and "c".
data Rig = Rig
  { rigWorld :: !World,
    rigNetwork :: !Network,
    rigReports :: !(IORef [String]),
    rigWarnings :: !(IORef [String])
  }

-- | Run a thread on the home machine of a world; its result, and what happened in the world.
-- Fails if an exception left a thread.
inWorld :: (HasCallStack) => Conditions -> Seed -> (Rig -> Thread a) -> IO (a, [String])
inWorld conditions seed body = do
  notes <- newIORef []
  reports <- newIORef []
  warnings <- newIORef []
  uncaught <- newIORef []
  made <- newWorld conditions seed byChance (\w -> modifyIORef' warnings (w :))
  let world = made {worldNote = Just (\n -> modifyIORef' notes (n :))}
  mapM_ (\name -> addMachine world (Text.pack name) []) ["a", "b", "c"]
  sim <- newSim seed world
  let settings =
        defaultSettings
          { settingKernel = simKernel sim,
            settingWorkers = Just 1,
            -- A busy machine must not have the worker taken over in the middle of an effect.
            settingCarriers = 0,
            settingDeadlock = RaiseDeadlock,
            settingReport = \r -> modifyIORef' reports (r :),
            settingUncaught = \_ _ e -> modifyIORef' uncaught (show e :)
          }
  a <- runWith settings (body (Rig world (simNetwork sim) reports warnings))
  readIORef uncaught >>= (@?= [])
  (,) a . reverse <$> readIORef notes

-- | In a calm world, with a fixed seed.
inCalm :: (HasCallStack) => (Rig -> Thread a) -> IO a
inCalm = fmap fst . inWorld calm 1

-- | The machine of this name.
machine :: Rig -> String -> Thread Machine
machine rig name = liftIO $ machineNamed (rigWorld rig) (Text.pack name) >>= maybe (assertFailure ("no machine " <> name)) pure

addressOf :: Machine -> HostAddress
addressOf m = case machineAddresses m of
  a : _ -> a
  [] -> 0

-- | Run the body on a machine, in the life that the machine has now.
residingAt :: Machine -> Thread a -> Thread a
residingAt m body = do
  life <- liftIO (readIORef (machineLife m))
  moveTo (Residence (machineNumber m) life) *> (body `finally` moveTo (Residence 0 0))
  where
    moveTo r = changeContext (residing r)

spawnAt :: Machine -> Thread a -> Thread (Thread a)
spawnAt m = spawn . residingAt m

-- | Change the world.
changing :: IO a -> Thread a
changing = liftIO

-- | Let the given number of milliseconds of the world's time pass.
pause :: Int -> Thread ()
pause = sleep . milliseconds

-- | A listener on a port of all addresses.
listenAt :: PortNumber -> Int -> Thread Socket
listenAt port backlog = do
  s <- openSocket AF_INET Stream
  bind s (SockAddrInet port 0)
  s <$ listen s backlog

-- | A connection to a port of a machine.
dial :: Machine -> PortNumber -> Thread Socket
dial m port = do
  s <- openSocket AF_INET Stream
  (s <$ connect s (SockAddrInet port (addressOf m))) `onException` closeSocket s

-- | Run a client on machine "a" and a server on machine "b", each with its end of one connection.
connectedOver :: Rig -> (Socket -> Thread a) -> (Socket -> Thread b) -> Thread (a, b)
connectedOver rig client server = do
  a <- machine rig "a"
  b <- machine rig "b"
  serving <- spawnAt b . withSocket (listenAt 7000 16) $ \l -> withSocket (fst <$> accept l) server
  pause 1
  asking <- spawnAt a (withSocket (dial b 7000) client)
  -- Both end, whichever fails: the other one's connection ends with it.
  asked <- try asking
  served <- try serving
  case (asked, served) of
    (Right x, Right y) -> pure (x, y)
    (Left e, Right _) -> throwM (e :: SomeException)
    (Right _, Left e) -> throwM (e :: SomeException)
    (Left e, Left e') -> liftIO (assertFailure (show e <> "; and at the other end: " <> show e'))

-- | Bytes of a stream from a position: position and content agree, so that a byte that is lost,
-- doubled or out of order shows.
patternBytes :: Int -> Int -> ByteString
patternBytes from n = fst (ByteString.unfoldrN n (\i -> Just (fromIntegral (i * 7 + i `div` 251), i + 1)) from)
