-- | The state of every thread of a run at this moment. A dump names each thread by number and label, says
-- which thread forked it, which scope owns it, how old it is, and what it waits for and since when; thousands
-- that are alike take one line. It takes no lock and stops no scheduler: each worker tells of its own threads
-- between two slices. It works while a thread holds up its worker, and says that it does.
--
-- >>> import qualified Data.Text as Text
-- >>> import Weft
-- >>> Text.take 9 <$> run dumpThreads
-- "1 thread:"
--
-- The signal @SIGUSR1@ prints a dump to standard error, unless the program handles
-- that signal itself or 'Weft.settingDumpSignal' is off.
module Weft.Dump (dumpThreads) where

import Control.Concurrent (forkIO)
import Control.Exception (SomeException, try)
import Control.Monad (void)
import Data.Foldable (toList)
import Data.Text (Text)
import Weft.Internal.Core.SystemCall
import Weft.Internal.Core.Trace
import Weft.Internal.Observe.Dump

-- | All threads, for people to read; the format is not stable. Takes some microseconds for each thread,
-- between two slices of its worker; one that does not answer within a second is named. Cancellable.
dumpThreads :: Thread Text
dumpThreads = do
  homes <- internal (\home _ -> pure (toList (homePeers home)))
  call . Suspend (because "a dump of all threads") $ \waiter -> do
    -- On a thread of GHC, because it waits for the workers, and this is one.
    void . forkIO $ do
      text <- try (snapshot homes >>= renderSnapshot)
      void . deliver waiter $ either (\e -> Failed (e :: SomeException)) Answered text
    pure (pure ())
