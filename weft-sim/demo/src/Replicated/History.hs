-- |
-- Description : The operations of clients, and their times
--
-- A recorder is not part of the world: it sees the clients of all machines, and what it has
-- recorded can be read when these are gone.
module Replicated.History
  ( History,
    Operation (..),
    Action (..),
    Moment (..),

    -- * Recording
    Recorder,
    newRecorder,
    record,
    recorded,

    -- * In words
    describeAction,
    summary,
  )
where

import Control.Monad.IO.Class (MonadIO (..))
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (sortOn)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Text (Text)
import Replicated.Client (Outcome (..))
import Replicated.Entry
import Weft (Thread)
import Weft.Time (Instant, now)

-- | Operations, in the order in which they began.
type History = [Operation]

-- | One operation of a client on a register.
data Operation = Operation
  { operationClient :: !Text,
    operationKey :: !Key,
    operationAction :: !Action,
    operationBegan :: !Moment,
    operationEnded :: !Moment
  }
  deriving stock (Eq, Show)

-- | An operation's kind, its value and its outcome.
data Action
  = Put !Value !(Outcome ())
  | Get !(Outcome (Maybe Value))
  deriving stock (Eq, Show)

-- | The number says what came first, also where much happens in one instant, as in a
-- simulation, or where clocks differ. The instant, on the clock of 'now', is for people.
data Moment = Moment
  { momentNumber :: !Int,
    momentInstant :: !Instant
  }
  deriving stock (Eq, Ord, Show)

-- | Where clients record what they do: the next number, and the operations by the number
-- of the moment in which they began.
newtype Recorder = Recorder (IORef (Int, Map Int Operation))

-- | A recorder of an empty history.
newRecorder :: (MonadIO m) => m Recorder
newRecorder = Recorder <$> liftIO (newIORef (0, Map.empty))

-- | Perform an operation and record it. One that never returns, because its client has
-- crashed, has an unknown outcome.
record :: Recorder -> Text -> Key -> (Outcome a -> Action) -> Thread (Outcome a) -> Thread ()
record recorder client key action body = do
  began <- moment recorder
  write (Operation client key (action (Unknown "it never returned")) began began)
  outcome <- body
  ended <- moment recorder
  write (Operation client key (action outcome) began ended)
  where
    write operation = change recorder $ \(n, operations) ->
      ((n, Map.insert (momentNumber (operationBegan operation)) operation operations), ())

moment :: Recorder -> Thread Moment
moment recorder = do
  instant <- now
  number <- change recorder (\(n, operations) -> ((n + 1, operations), n))
  pure (Moment number instant)

change :: Recorder -> ((Int, Map Int Operation) -> ((Int, Map Int Operation), a)) -> Thread a
change (Recorder state) f = liftIO (atomicModifyIORef' state f)

-- | All that was recorded until now.
recorded :: (MonadIO m) => Recorder -> m History
recorded (Recorder state) = sortOn operationBegan . Map.elems . snd <$> liftIO (readIORef state)

-- | Such as @put a1@, or @get: nothing@.
describeAction :: Action -> String
describeAction = \case
  Put value outcome -> "put " <> Char8.unpack value <> ending outcome ""
  Get outcome -> "get" <> ending outcome (maybe ": nothing" ((": " <>) . Char8.unpack) (result outcome))
  where
    ending outcome done = case outcome of
      Done _ -> done
      Failed _ -> " (failed)"
      Unknown _ -> " (unknown)"
    result = \case
      Done a -> a
      _ -> Nothing

-- | How many operations there were, and how they ended.
summary :: History -> String
summary history =
  unwords
    [ show (length history) <> " operations:",
      count "puts" [() | Put _ (Done _) <- actions] <> ",",
      count "gets" [() | Get (Done _) <- actions] <> ",",
      count "failed" ([() | Put _ (Failed _) <- actions] <> [() | Get (Failed _) <- actions] <> [() | Get (Unknown _) <- actions]) <> ",",
      count "puts of unknown outcome" [() | Put _ (Unknown _) <- actions]
    ]
  where
    actions = map operationAction history
    count what xs = show (length xs) <> " " <> what
