{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Hosts on a segment of Ethernet, explored
--
-- Machines that find each other by ARP, on a segment that loses, doubles, reorders and corrupts frames: some crash and come back
-- with other hardware, or have it changed while they are up; some are cut off; one address has nobody; a stranger asks,
-- answers and announces in the name of others. Each byte that arrives is the next one, or the connection ends with an error; once the trouble is over
-- all hosts reach each other. The segment itself notices a packet that goes to the hardware of another machine than it is for
-- ('overSegments').
module Explore.Ethernet (ethernet, ethernetWith) where

import Control.Monad (forM, replicateM, unless, when)
import Data.Bits (shiftR, (.&.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Either (isRight)
import Data.IORef
import Data.Maybe (isNothing)
import Data.Text (Text)
import Explore.Draw
import Explore.Scenario
import System.IO.Unsafe (unsafePerformIO)
import Weft
import Weft.Scope
import Weft.Sim
import Weft.Socket
import Weft.Tcp.Simulated
import Weft.Timeout

-- | The segment of a seed.
onEthernet :: Seed -> IpSettings -> IpSettings
onEthernet (Seed n) ip =
  ip
    { ipName = ipName ip <> ", Ethernet",
      ipEthernet = True,
      ipRenamed = if odd (n `shiftR` 5) then Just (seconds 13) else Nothing,
      ipForgery = if odd (n `shiftR` 6) then 0.1 else 0
    }

-- | The scenario.
ethernet :: Scenario
ethernet = ethernetWith id

-- | The scenario with other segments.
ethernetWith :: (IpSettings -> IpSettings) -> Scenario
ethernetWith change =
  Scenario
    { scenarioName = "segments/ethernet",
      scenarioAbout = "hosts of a segment reach each other, and no other",
      scenarioKind = Drawn,
      scenarioConfig = \seed@(Seed n) ->
        (configOf seed)
          { configLayer = overSegments (change (onEthernet seed (links (n `shiftR` 1 .&. 3)))),
            configMaxSteps = 5_000_000,
            configFaults = script seed
          },
      scenarioProgram = \seed -> segment [name | At _ (Crash name) <- script seed] (draw seed (replicateM 4 (several 1 4 work)))
    }
  where
    -- A seed always draws the same script.
    script = unsafePerformIO . drawFaults trouble
    links = \case
      0 -> calmIp
      1 -> roughIp {ipMtu = 576}
      2 -> roughIp
      _ -> roughIp {ipName = "very rough segments", ipLoss = 0.1, ipReordering = 0.2}
    work = Work <$> between 0 2 <*> oneOf [between 1 100, between 1000 20000] <*> oneOf [pure 0, between 1 2000, between 29000 40000]
    trouble =
      FaultPlan
        { planMachines = servers,
          planBystanders = [],
          planKinds = [Crashes, Partitions],
          planFrom = mempty,
          planUntil = seconds troubled,
          planCount = 3,
          planLength = seconds 5
        }

-- The number of a server, how many bytes go there and come back, and for how many milliseconds the connection rests in between.
data Work = Work !Int !Int !Int

servers :: [Text]
servers = ["one", "two", "three"]

-- In seconds.
troubled :: Int
troubled = 60

-- Given the names of those that crash.
segment :: [Text] -> [[Work]] -> Thread Complaints
segment crashing plans = do
  there <- mapM newMachine servers
  mapM_ (`boot` service) there
  peer <- newMachine "peer"
  sleep (milliseconds 100)
  withScope $ \scope -> do
    -- Two at home, and two on a machine that is left in peace, too.
    clients <- forM (zip [1 ..] plans) $ \(k, plan) ->
      forkIn scope . (if odd k then onMachine peer else id) $ concat <$> mapM (fmap fst . exchange crashing k there) plan
    nobody <- forkIn scope unanswered
    complaints <- mapM awaitChild clients
    silence <- awaitChild nobody
    sleep (seconds (troubled + 10))
    -- A machine of which a router or a crash has not told yet may still reset one.
    after' <- forM [0 .. 2] $ \k -> settled 5 (exchange crashing 9 there (Work k 3000 0))
    pure (concat complaints <> silence <> concat after')
  where
    settled :: Int -> Thread (Complaints, Bool) -> Thread Complaints
    settled tries act =
      act >>= \case
        (complaints, True) -> pure complaints
        (complaints, False)
          | not (null complaints) -> pure complaints
          | tries <= 1 -> pure ["a host is not reached after the trouble"]
          | otherwise -> settled (tries - 1) act

-- What is sent there comes back, or an error: what is wrong, and did all come?
exchange :: [Text] -> Int -> [Machine] -> Work -> Thread (Complaints, Bool)
exchange crashing k there (Work server size rest) = do
  wrong <- liftIO (newIORef False)
  ended <- timeout (seconds 600) . try @_ @IOError . withSocket (openSocket AF_INET Stream) $ \s -> do
    connect s (SockAddrInet 80 (machineAddress (there !! server)))
    through wrong s (content k half)
    sleep (milliseconds rest)
    through wrong s (content (k + 1) (size - half))
  others <- liftIO (readIORef wrong)
  -- Of a host that has crashed after it acknowledged everything nothing is heard any more: that is for the user to notice.
  let hangs = isNothing ended && servers !! server `notElem` crashing
  pure (["other bytes came back" | others] <> ["a connection to a machine that never crashes hangs" | hangs], any isRight ended)
  where
    half = size `div` 2
    through wrong s bytes = withScope $ \scope -> do
      sending <- forkIn scope (try @_ @IOError (sendAll s bytes))
      comesBack wrong s bytes
      awaitChild sending >>= either throwM pure

-- These bytes come, or others, or an error.
comesBack :: IORef Bool -> Socket -> ByteString -> Thread ()
comesBack wrong s expected
  | B.null expected = pure ()
  | otherwise = do
      bytes <- receive s (B.length expected)
      when (B.null bytes) (throwM (userError "it has ended"))
      unless (bytes `B.isPrefixOf` expected) (liftIO (writeIORef wrong True))
      comesBack wrong s (B.drop (B.length bytes) expected)

-- Nobody has this address.
unanswered :: Thread Complaints
unanswered = do
  r <- timeout (seconds 300) (try @_ @IOError (withSocket (openSocket AF_INET Stream) (\s -> connect s (SockAddrInet 80 silent))))
  pure (["connecting to nobody goes on for ever" | Nothing <- [r]] <> ["nobody has answered" | Just (Right ()) <- [r]])
  where
    -- 10.0.0.200
    silent = 200 * 0x1000000 + 10

-- Give everything back, for as long as the machine is up.
service :: Thread ()
service = withSocket (listenTcp Nothing "80" 64) $ \l ->
  let go = accept l >>= \(s, _) -> fork_ (withSocket (pure s) (\_ -> back s `catch` \(_ :: IOError) -> pure ())) >> go
   in go
  where
    back s = receive s 4096 >>= \bytes -> if B.null bytes then pure () else sendAll s bytes >> back s

content :: Int -> Int -> ByteString
content k size = fst (B.unfoldrN size (\x -> Just (fromIntegral (x `div` 65536), (x * 1103515245 + 12345) `mod` 2147483648)) k)
