-- | Applications that block as GHC's threads do, or have threads of their own.
module BlockingTest (tests) where

import Client
import Control.Concurrent
import Control.Concurrent.Async (concurrently, forConcurrently, race)
import Control.Concurrent.STM
import Control.Exception
import Control.Monad (replicateM, unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.Either (fromRight)
import Data.List (isInfixOf)
import Network.HTTP.Types
import Network.Wai
import System.Mem (performMajorGC)
import System.Timeout (timeout)
import Test.Tasty
import Test.Tasty.HUnit
import Weft qualified as Runtime
import Weft.IO qualified as IO
import Weft.Time (milliseconds, seconds)
import Weft.Wai

-- | A worker's carrier is a bound thread.
whereItRuns :: IO ByteString
whereItRuns = (\bound -> if bound then "on a worker" else "on its own") <$> isCurrentThreadBound

untilIt :: IO Bool -> IO ()
untilIt condition = condition >>= \met -> unless met (untilIt condition)

tests :: TestTree
tests =
  testGroup
    "blocking"
    [ testGroup (show style) (map (\(name, test) -> testCase name (test style)) both)
      | style <- [minBound .. maxBound]
    ]
  where
    both =
      [ ( "threadDelay",
          \style -> asking style (\_ respond -> threadDelay 2000 >> respond (text "slept")) >>= (@?= "slept")
        ),
        ( "an MVar that another request fills",
          \style -> do
            box <- newEmptyMVar
            let application request respond
                  | rawPathInfo request == "/take" = takeMVar box >>= respond . text
                  | otherwise = putMVar box "handed over" >> respond (text "put")
            serving style application $ \port -> do
              answers <- forConcurrently ["/take", "/put"] (\target -> replyBody . replyTo "GET" <$> exchange port (get target))
              answers @?= ["handed over", "put"]
        ),
        ( "STM that another request wakes",
          \style -> do
            var <- newTVarIO (0 :: Int)
            let application request respond
                  | rawPathInfo request == "/wait" = atomically (readTVar var >>= check . (== 3)) >> respond (text "three")
                  | otherwise = atomically (modifyTVar' var (+ 1)) >> respond (text "one more")
            serving style application $ \port -> do
              answers <- forConcurrently ["/wait", "/", "/", "/"] (\target -> replyBody . replyTo "GET" <$> exchange port (get target))
              answers @?= ["three", "one more", "one more", "one more"]
        ),
        ( "race and concurrently",
          \style -> do
            let application _ respond = do
                  first' <- race (threadDelay 10_000_000) (pure "fast")
                  (a, b) <- concurrently (threadDelay 1000 >> pure "a") (pure "b")
                  respond (text (fromRight "slow" first' <> a <> b))
            asking style application >>= (@?= "fastab")
        ),
        ( "a response from a forked thread",
          \style -> do
            let application _ respond = race (threadDelay 10_000_000) (respond (text "from there")) >>= either (const (throwIO (userError "late"))) pure
            asking style application >>= (@?= "from there")
        ),
        ( "a stream that is written by a forked thread",
          \style -> do
            let application _ respond = respond . responseStream status200 [] $ \write flush -> do
                  done <- newEmptyMVar
                  _ <- forkIO ((write "a" >> flush >> write "b") `finally` putMVar done ())
                  takeMVar done
                  write "c"
            asking style application >>= (@?= "abc")
        ),
        ( "timeout around what does not wait for the client",
          \style -> do
            let application _ respond = do
                  early <- timeout 5000 (threadDelay 10_000_000)
                  late <- timeout 60_000_000 (pure ())
                  respond (text (C.pack (show (early, late))))
            asking style application >>= (@?= "(Nothing,Just ())")
        ),
        ( "a timeout that does not pass, around the whole",
          \style -> do
            let application request respond = timeout 60_000_000 (strictRequestBody request >> respond (text "in time")) >>= maybe (throwIO (userError "late")) pure
            asking style application >>= (@?= "in time")
        ),
        ( "the timeout of Weft, while the client is awaited",
          \style -> do
            let application request respond = IO.timeout (milliseconds 10) (strictRequestBody request) >>= respond . text . maybe "gave up" (const "came")
            answer <- serving style application $ \port -> withClient port $ \c -> do
              say c "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
              got <- hearUntil c "gave up"
              say c "0\r\n\r\n"
              (got <>) <$> hearAll c
            replyBody (replyTo "POST" answer) @?= "gave up"
        ),
        ( "a timeout that passes while the client is awaited",
          \style -> do
            strays <- newEmptyMVar
            let application request respond
                  | requestMethod request == "GET" = whereItRuns >>= respond . text
                  | otherwise = timeout 100_000 (strictRequestBody request) >>= respond . text . maybe "gave up" (const "came")
                heard report = when ("thrown at a worker" `isInfixOf` report) (void (tryPutMVar strays ()))
                quiet = setRuntime (\runtime -> runtime {Runtime.settingReport = heard}) (settings style)
            withApplicationSettings quiet (pure application) $ \port -> do
              answer <- withClient port $ \c -> do
                say c "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
                begun <- case style of
                  OwnThread -> hearUntil c "gave up"
                  -- It goes astray when the worker wakes, as it waits by then: once a second for sure.
                  _ -> "" <$ takeMVar strays
                say c "0\r\n\r\n"
                (begun <>) <$> hearAll c
              replyBody (replyTo "POST" answer) @?= (if style == OwnThread then "gave up" else "came")
              -- The service goes on, in a way in which this does not happen.
              let next = replyBody . replyTo "GET" <$> exchange port (get "/")
              case style of
                Direct -> next >>= (@?= "on a worker")
                _ -> untilIt ((== "on its own") <$> next)
        ),
        ( "where it runs when it blocks",
          \style -> serving style (\_ respond -> threadDelay 500 >> whereItRuns >>= respond . text) $ \port -> do
            let next = replyBody . replyTo "GET" <$> exchange port (get "/")
            case style of
              Direct -> replicateM 50 next >>= (@?= replicate 50 "on a worker")
              OwnThread -> next >>= (@?= "on its own")
              Automatic -> untilIt ((== "on its own") <$> next)
        ),
        ( "where it runs when it does not",
          \style -> serving style (\_ respond -> whereItRuns >>= respond . text) $ \port -> do
            answers <- replicateM 200 (replyBody . replyTo "GET" <$> exchange port (get "/"))
            case style of
              -- The machine may be too busy for the others; "ChooserTest" has a clock of its own.
              Automatic -> take 1 answers @?= ["on a worker"]
              Direct -> answers @?= replicate 200 "on a worker"
              OwnThread -> answers @?= replicate 200 "on its own"
        ),
        ( "many at a time, each asleep",
          \style -> servingWith (setWorkers 2) style (\_ respond -> threadDelay 20_000 >> respond (text "x")) $ \port -> do
            answers <- forConcurrently [1 .. 20 :: Int] (\_ -> replyBody . replyTo "GET" <$> exchange port (get "/"))
            answers @?= replicate 20 "x"
        ),
        ( "the operations of Weft",
          \style -> do
            let application _ respond = do
                  IO.sleep (milliseconds 1)
                  (a, b) <- IO.concurrently (IO.blocking (threadDelay 1000) >> pure "a") (pure "b")
                  never <- IO.timeout (milliseconds 1) (IO.sleep (seconds 3600))
                  respond (text (a <> b <> maybe "" (const "?") never))
            asking style application >>= (@?= "ab")
        ),
        ( "a response from a forked thread, when what was there before is garbage",
          \style -> do
            let application _ respond = race (threadDelay 10_000_000) (respond (text "from there")) >>= either (const (throwIO (userError "late"))) pure
                -- Where something was that only the run-time system knew of, there is
                -- something else then.
                tidy = performMajorGC >> evaluate (length (show [1 .. 50_000 :: Int])) >> performMajorGC
            serving style application $ \port -> do
              answers <- replicateM 20 (replyBody . replyTo "GET" <$> exchange port (get "/") <* tidy)
              answers @?= replicate 20 "from there"
        ),
        ( "an operation of Weft in a forked thread says that it cannot",
          \style -> do
            let application _ respond = do
                  box <- newEmptyMVar
                  void (forkIO (try (IO.sleep (milliseconds 1)) >>= putMVar box))
                  outcome <- takeMVar box
                  respond (text (C.pack (either (\e -> show (e :: IO.CannotSuspend)) show outcome)))
            asking style application >>= (@?= C.pack (show IO.NothingToSuspend))
        )
      ]
    settings style = setApplicationStyle style (setOnException (\_ _ -> pure ()) defaultSettings)
    text = responseLBS status200 [] . Lazy.fromStrict
    asking :: ApplicationStyle -> Application -> IO ByteString
    asking style application = serving style application $ \port -> replyBody . replyTo "GET" <$> exchange port (get "/")
