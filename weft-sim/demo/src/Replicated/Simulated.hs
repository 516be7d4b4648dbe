-- |
-- Description : The same store in a simulated world
--
-- The replicas, the clients and what they do are those of "Replicated.Loopback", to the
-- letter; here each has a machine of its own, with an address, a disk and a clock, and trouble
-- is more than a process that ends: machines lose power in the middle of a write, the
-- network falls into parts, clocks jump.
module Replicated.Simulated
  ( -- * A cluster
    Cluster (..),
    defaultCluster,
    cluster,

    -- * Its runs
    conditions,
    trouble,
    verdictOn,
  )
where

import Control.Monad (forM, forever)
import Data.Text (Text)
import Data.Text qualified as Text
import Replicated.Client
import Replicated.History
import Replicated.Linearizability
import Replicated.Mistake
import Replicated.Replica
import Replicated.Workload
import Weft
import Weft.Concurrently
import Weft.Sim hiding (check)
import Weft.Socket (SockAddr (..))
import Weft.Time (microseconds, nanoseconds)

-- | The simulated cluster and its work.
data Cluster = Cluster
  { clusterReplicas :: !Int,
    clusterClients :: !Int,
    -- | How long the clients work, in nanoseconds of virtual time.
    clusterTime :: !Int,
    -- | The longest pause between two operations of a client, in nanoseconds.
    clusterPause :: !Int,
    clusterMistakes :: ![Mistake]
  }
  deriving stock (Eq, Show, Read)

-- | Three replicas and five clients for five seconds, pauses of up to 50 milliseconds, no
-- mistakes. With fewer clients or longer pauses a get seldom meets a put that is under way, and
-- 'NoWriteBack' is not found in some hundred worlds.
defaultCluster :: Cluster
defaultCluster = Cluster 3 5 5_000_000_000 50_000_000 []

-- | @a@, @b@, @c@, ...
replicaNames :: Cluster -> [Text]
replicaNames c = take (clusterReplicas c) (map Text.singleton ['a' .. 'z'] <> ["replica-" <> Text.pack (show n) | n <- [27 :: Int ..]])

-- | @client-1@, @client-2@, ...
clientNames :: Cluster -> [Text]
clientNames c = ["client-" <> Text.pack (show n) | n <- [1 .. clusterClients c]]

-- | Machines for all of them; what the clients did.
cluster :: Cluster -> Thread History
cluster c = do
  replicas <- forM (replicaNames c) $ \name -> do
    machine <- newMachine name
    let address = SockAddrInet 7000 (machineAddress machine)
        settings = (defaultReplicaSettings name address "/data") {replicaRewriteAt = 20_000, replicaMistakes = clusterMistakes c}
    boot machine (supervised (replica settings))
    pure address
  clients <- forM (clientNames c) $ \name -> (name,) <$> newMachine name
  recorder <- newRecorder
  forConcurrently_ clients $ \(name, machine) ->
    onMachine machine . withClient (defaultClientSettings name replicas) {clientMistakes = clusterMistakes c} $
      worker work recorder name
  recorded recorder
  where
    work = defaultWorkloadSettings {workloadTime = nanoseconds (clusterTime c), workloadPause = nanoseconds (clusterPause c)}

-- | Started again when the system has refused it something, as a service manager does.
supervised :: Thread () -> Thread ()
supervised service = forever (service `catch` \e -> sleep (seconds 1) <* remark ("a replica ends: " <> show (e :: IOError)))

-- | A network of the everyday kind, and disks that take their time.
conditions :: Cluster -> Config
conditions c =
  defaultConfig
    { configStrategy = Uniformly 0.1,
      configConditions = rough {linkDelay = (microseconds 100, milliseconds 3), syncDelay = (microseconds 500, milliseconds 10)},
      configMaxSteps = 100_000_000,
      configMaxTime = nanoseconds (2 * clusterTime c + 60_000_000_000),
      configRaces = False
    }

-- | The fault plan: kinds of faults, for a while each, during the first nine tenths of the time.
trouble :: Cluster -> [FaultKind] -> Int -> FaultPlan
trouble c kinds count =
  FaultPlan
    { planMachines = replicaNames c,
      planBystanders = clientNames c,
      planKinds = kinds,
      planFrom = nanoseconds 0,
      planUntil = nanoseconds (clusterTime c * 9 `div` 10),
      planCount = count,
      planLength = nanoseconds (clusterTime c `div` 4)
    }

-- | Nothing is wrong with the run, and what the clients saw is what one register for each key
-- would have shown them.
verdictOn :: Verdict History
verdictOn = flawlessAnd (either (Just . ("the history is not linearizable\n\n" <>) . explain) (const Nothing) . check)
