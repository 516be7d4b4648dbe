-- |
-- Description : Random clients of one object, against a sequential model
--
-- Draws a few clients with a few operations each, in both styles, masked and not, some of
-- them under a time limit, and cancellations at any step. All that was answered must be what
-- the model could have answered, in some order; what was cancelled must not have happened; and
-- when no thread can run, none may wait for what is there.
module Explore.Crowd
  ( Model (..),
    Waits (..),
    crowd,
  )
where

import Control.Exception qualified as Ghc
import Control.Monad (forM_, replicateM_, void)
import Data.IORef
import Data.IntMap.Strict qualified as IntMap
import Data.List (sortOn)
import Explore.Draw
import Explore.History
import Explore.Scenario
import Weft
import Weft.IO qualified as IO
import Weft.Mask (interruptible, mask_)
import Weft.Time (microseconds)
import Weft.Timeout (timeout)

-- | An object and what it is to do.
data Model obj op res st = Model
  { modelNew :: Thread obj,
    -- | The operation of one client.
    modelDo :: obj -> op -> Thread res,
    modelStart :: st,
    -- | All that an operation of a client may come to; nothing: it waits.
    modelStep :: st -> Int -> op -> [(st, res)],
    modelOps :: Draw op,
    -- | The operations of the main thread at the end, which show the final state. They must not wait.
    modelLast :: [op],
    modelWaits :: Waits
  }

-- | When no thread can run: may a thread wait for what it could have?
data Waits
  = -- | Never.
    NobodyWaits
  | -- | Only after one that has come before and cannot.
    InLine
  deriving stock (Eq)

data Step op
  = Do !Manner op
  | Yields !Int

data Manner
  = Plainly
  | -- | While masked.
    Masked
  | -- | At most this number of microseconds.
    Limited !Int

data Client op = Client
  { clientDirect :: !Bool,
    clientSteps :: [Step op]
  }

-- | A blow falls on a client, after this number of turns.
data Blow = Blow !Int !Int

-- | The current operation of a client, and the completed ones.
data Report op res = Report !(IORef Int) !(IORef (IntMap.IntMap (Int, op))) !(IORef [Done op res])

-- | A program of such clients.
crowd :: (Show op, Show res, Eq res, Ord st, Show st) => Draw (Model obj op res st) -> Draw (Thread Complaints)
crowd drawModel = do
  model <- drawModel
  clients <- several 2 4 (drawClient (modelOps model))
  blows <- several 0 3 (Blow <$> between 0 (length clients - 1) <*> between 0 12)
  pure (runCrowd model clients blows)

drawClient :: Draw op -> Draw (Client op)
drawClient op = Client <$> chance 25 <*> several 1 4 step
  where
    step = weighted [(5, Do <$> manner <*> op), (1, Yields <$> between 1 3)]
    manner = weighted [(4, pure Plainly), (3, pure Masked), (2, Limited <$> between 1 1000)]

runCrowd :: (Show op, Show res, Eq res, Ord st, Show st) => Model obj op res st -> [Client op] -> [Blow] -> Thread Complaints
runCrowd model clients blows = do
  object <- modelNew model
  report <- liftIO (Report <$> newIORef 0 <*> newIORef IntMap.empty <*> newIORef [])
  ended <- liftIO (newIORef (0 :: Int))
  -- Masked from the beginning, so that none is cancelled before it can say that it has ended.
  threads <- mask_ (spread [interruptible (client object report i c) `finally` liftIO (modifyIORef' ended (+ 1)) | (i, c) <- zip [1 ..] clients])
  forM_ (zip [1 ..] blows) $ \(worker, Blow target turns) ->
    forkOn worker (replicateM_ turns yield >> cancel (threads !! target))
  quiet
  waiting <- liftIO (waitingIn report)
  early <- liftIO (historyOf report)
  let settled = linearizations (modelStep model) (modelStart model) early
      content st = case modelWaits model of
        NobodyWaits -> all (stuck st) waiting
        InLine -> null waiting || any (stuck st) waiting
      stuck st (c, op) = null (modelStep model st c op)
  -- A client goes on after a cancellation, and may wait again.
  replicateM_ 6 (mapM_ cancel threads >> quiet)
  over <- liftIO (readIORef ended)
  forM_ (modelLast model) (\op -> perform report 0 op (modelDo model object op))
  late <- liftIO (historyOf report)
  pure . concat $
    [ expect ("no order explains what was answered:\n" <> render early) (not (null settled)),
      expect
        ("somebody waits for what is there: " <> show waiting <> "\nthe object would be " <> show settled <> " after\n" <> render early)
        (null settled || any content settled),
      expectEqual "clients that had ended when all were cancelled" (length clients) over,
      expect
        ("no order explains what was left at the end:\n" <> render late)
        (null settled || not (null (linearizations (modelStep model) (modelStart model) late)))
    ]
  where
    client object report i c
      | clientDirect c = IO.direct (mapM_ (direct object report i) (clientSteps c))
      | otherwise = mapM_ (stepOf object report i) (clientSteps c)
    stepOf object report i = \case
      Yields n -> void (try (replicateM_ n yield) :: Thread (Either Cancelled ()))
      Do manner op -> case manner of
        Plainly -> perform report i op (modelDo model object op)
        Masked -> mask_ (perform report i op (modelDo model object op))
        Limited us -> performLimited report i op us (modelDo model object op)
    direct object report i = \case
      Yields n -> void (Ghc.try (replicateM_ n IO.yield) :: IO (Either Cancelled ()))
      Do manner op -> case manner of
        Plainly -> performDirect report i op (IO.await (modelDo model object op))
        Masked -> Ghc.mask_ (performDirect report i op (IO.await (modelDo model object op)))
        Limited us -> IO.await (performLimited report i op us (modelDo model object op))

-- | An operation of this client, with the times of its call and return. A cancellation of it is
-- over with it.
perform :: Report op res -> Int -> op -> Thread res -> Thread ()
perform report i op act = performWith report i op (fmap Just act)

performLimited :: Report op res -> Int -> op -> Int -> Thread res -> Thread ()
performLimited report i op us act = performWith report i op (timeout (microseconds us) act)

performWith :: Report op res -> Int -> op -> Thread (Maybe res) -> Thread ()
performWith report i op act = mask $ \restore -> do
  called <- liftIO (begin report i op)
  outcome <- try (restore act)
  liftIO (finish report i op called (either (\Cancelled -> Nothing) id outcome))

performDirect :: Report op res -> Int -> op -> IO res -> IO ()
performDirect report i op act = Ghc.mask $ \restore -> do
  called <- begin report i op
  outcome <- Ghc.try (restore act)
  finish report i op called (either (\Cancelled -> Nothing) Just outcome)

begin :: Report op res -> Int -> op -> IO Int
begin (Report clock busy _) i op = do
  called <- tick clock
  called <$ modifyIORef' busy (IntMap.insert i (called, op))

finish :: Report op res -> Int -> op -> Int -> Maybe res -> IO ()
finish (Report clock busy done) i op called outcome = do
  returned <- tick clock
  modifyIORef' busy (IntMap.delete i)
  forM_ outcome $ \res -> modifyIORef' done (Done i called returned op res :)

tick :: IORef Int -> IO Int
tick clock = atomicModifyIORef' clock (\n -> (n + 1, n))

-- | The clients that are in an operation, the first that came first.
waitingIn :: Report op res -> IO [(Int, op)]
waitingIn (Report _ busy _) = map (\(i, (_, op)) -> (i, op)) . sortOn (fst . snd) . IntMap.toList <$> readIORef busy

historyOf :: Report op res -> IO [Done op res]
historyOf (Report _ _ done) = reverse <$> readIORef done

render :: (Show op, Show res) => [Done op res] -> String
render history =
  unlines
    [ concat ["  ", show (doneCalled d), "-", show (doneReturned d), " client ", show (doneClient d), ": ", show (doneOp d), " = ", show (doneResult d)]
      | d <- sortOn doneCalled history
    ]
