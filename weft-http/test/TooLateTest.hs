-- | Clients whose heads come too late: they are told, have time to read that, and are waited for no longer than that.
module TooLateTest (tests) where

import Control.Monad (forM_)
import Data.IORef
import ServerRig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Concurrently (concurrently)
import Weft.Http.Server hiding (Server)
import Weft.Http.Server.Phase (currentPhase, endPhase)
import Weft.Http.Server.State (Open (..), Server (..))
import Weft.Http.Status
import Weft.Socket hiding (Raw)
import Weft.Test.Loopback (toEnd, untilFound)
import Weft.Test.Message (statuses)
import Weft.Test.Waiting (eventually)
import Weft.Time (now, since)

tests :: TestTree
tests =
  localOption (mkTimeout 20_000_000) $
    testGroup
      "too late"
      [ testCase "one whose head came too late has time to read that, though nothing is received any more" headTooLate,
        testCase "the stream to one that still sends does not end" sendsOn,
        testCase "one that was told so, and closes, is waited for no longer" (toldSo Nothing),
        testCase "nor is one that stays where the server is cut off" (toldSo (Just cutOff))
      ]

-- | Its stream ends some time after the response was sent.
headTooLate :: Assertion
headTooLate = do
  received <- newIORef False
  times <- newIORef []
  let note = now >>= \t -> liftIO (modifyIORef' times (t :))
      layer _ below client =
        pure
          ( below
              { transportReceive = \buffer offset count -> transportReceive below buffer offset count <* liftIO (writeIORef received True),
                transportSend = \pieces -> note >> transportSend below pieces,
                transportEnd = note >> transportEnd below
              },
            client
          )
  (answer, _) <- withHandler (\s -> s {serverLayers = [layer]}) (\_ -> pure (plain ok200 [] "")) $ \rig -> rigClient rig $ \client -> do
    sendAll client "GET / HT"
    eventually "the part of the head" (readIORef received)
    endPhases rig
    toEnd client
  statuses answer @?= ["408"]
  readIORef times >>= \case
    [ended, sent] -> since sent ended >= milliseconds 100 @?= True
    other -> assertFailure (show (length other))

-- | As the ticker does.
endPhases :: Rig -> Thread ()
endPhases rig = do
  members <- liftIO (readIORef (serverConnections (rigServer rig)))
  forM_ (openConnections members) $ \m -> do
    (_, word, deadline) <- liftIO (currentPhase m)
    endPhase m word deadline (\_ -> pure ())

-- | An end would have the system answer the next piece with a reset, which may overtake what the client is told.
sendsOn :: Assertion
sendsOn = do
  received <- newIORef False
  stopped <- newIORef False
  let layer _ below client = pure (below {transportReceive = \buffer offset count -> transportReceive below buffer offset count <* liftIO (writeIORef received True)}, client)
  (answer, _) <- withHandler (\s -> s {serverLayers = [layer]}) (\_ -> pure (plain ok200 [] "")) $ \rig -> rigClient rig $ \client -> do
    sendAll client "GET / HT"
    eventually "the part of the head" (readIORef received)
    endPhases rig
    -- For longer than the server waits if nothing comes; its waits are longer than these.
    began <- now
    let pieces = do
          sendAll client "x" >> sleep (milliseconds 5)
          t <- now
          if since began t < milliseconds 400 then pieces else liftIO (writeIORef stopped True)
    (_, answer) <- concurrently pieces (toEnd client <* (liftIO (readIORef stopped) >>= liftIO . (@?= True)))
    pure answer
  statuses answer @?= ["408"]

-- | Its connection ends because the client has closed, or the server is cut off, and not at the limit of the last phase.
toldSo :: Maybe (Server -> Thread ()) -> Assertion
toldSo cutting = do
  received <- newIORef False
  let layer _ below client = pure (below {transportReceive = \buffer offset count -> transportReceive below buffer offset count <* liftIO (writeIORef received True)}, client)
  (answer, seen) <- withHandler (\s -> s {serverLayers = [layer]}) (\_ -> pure (plain ok200 [] "")) $ \rig -> do
    let gone = eventually "the end of the connection" ((== 0) <$> connectionCount (rigServer rig))
        told client = do
          sendAll client "GET / HT"
          eventually "the part of the head" (readIORef received)
          endPhases rig
          untilFound client "\r\n\r\n"
    case cutting of
      Nothing -> rigClient rig told <* gone
      Just act -> rigClient rig (\client -> told client <* act (rigServer rig) <* gone)
  statuses answer @?= ["408"]
  filter (== "ExpiredWrite") (seenObserved seen) @?= []
