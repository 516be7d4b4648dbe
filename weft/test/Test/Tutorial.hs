{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The programs of the tutorial do what it says
--
-- They are compiled into the suite from @examples/Tutorial@; that the text shows these
-- programs and no others is checked by @tools/docs@. No test sleeps to wait for
-- something: each client waits for the line that must come.
module Test.Tutorial (tests) where

import ComingFrom qualified
import Control.Exception (Deadlock (..))
import Control.Monad
import Control.Monad.Trans.Reader (runReaderT)
import Data.ByteString.Char8 (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isInfixOf, sort)
import Data.Text qualified as Text
import System.Posix.Signals (raiseSignal, sigTERM)
import Test.Support
import Test.Tasty
import Test.Tasty.HUnit
import Tutorial.Chat (Room, newRoom)
import Tutorial.Chat qualified as Chat
import Tutorial.Clients qualified as Clients
import Tutorial.Direct qualified as Direct
import Tutorial.Echo qualified as Echo
import Tutorial.Heavy qualified as Heavy
import Tutorial.Idle qualified as Idle
import Tutorial.Inside qualified as Inside
import Tutorial.Lines (lineReader)
import Tutorial.Shutdown (serveRoom)
import Weft
import Weft.Channel (newChannel, send)
import Weft.Event qualified as Event
import Weft.IO (direct)
import Weft.Scope
import Weft.Serve (defaultServeSettings, serveOn)
import Weft.Signal
import Weft.Socket hiding (send)

tests :: TestTree
tests =
  testGroup "Tutorial" $
    [ testGroup
        (describeConfig c)
        [ testCase "echo" (echoes c Echo.serve),
          testCase "echo, with a scope" (echoes c Clients.serve),
          testCase "a client that goes away disturbs nobody" (resets c),
          testCase "the scope's end is the clients' end" (cancelled c),
          testCase "a silent client is told so" (idle c),
          testCase "numbers of primes" (primes c)
        ]
      | c <- configurations
    ]
      <> [ testGroup
             ("chat, " <> style <> ", " <> describeConfig c)
             [ testCase "talk, taken names, bad names, quitting" (talk c session),
               testCase "a client goes in the middle of a line" (vanishes c session),
               testCase "a client that reads nothing is thrown out" (slow c session),
               testCase "a signal ends it: all is said, then it is over" (signalled c session),
               testCase "who does not read delays the end by the limit only" (limited c session)
             ]
           | c <- configurations,
             (style, session) <- [("monadic", Chat.session), ("direct", \room -> direct . Direct.session room)]
         ]
      <> [testCase "a deadlock is seen, and reported" deadlocked]
      <> [testGroup "Coming from forkIO" [testCase (describeConfig c) (comingFrom c) | c <- configurations]]

-- | A server while a part runs, which is given the server's thread and its address.
serving :: Thread Socket -> (Socket -> Thread ()) -> (ThreadId -> SockAddr -> Thread a) -> Thread a
serving open serve body = withSocket open $ \listener -> do
  address <- localAddress listener
  withScope $ \scope -> do
    server <- forkDaemonIn scope (serve listener)
    body (childThread server) address

listening :: Thread Socket
listening = listenTcp (Just "127.0.0.1") "0" 64

-- | A connection and its lines.
withClient :: SockAddr -> (Socket -> Thread (Maybe ByteString) -> Thread a) -> Thread a
withClient address body = withSocket (openSocket AF_INET Stream) $ \s -> do
  connect s address
  setOption s NoDelay 1
  lineReader 10_000 s >>= body s

expect :: (HasCallStack) => Thread (Maybe ByteString) -> [ByteString] -> Thread ()
expect next expected = forM_ expected $ \line -> next >>= liftIO . (@?= Just line)

expectEnd :: (HasCallStack) => Thread (Maybe ByteString) -> Thread ()
expectEnd next = next >>= liftIO . (@?= Nothing)

say :: Socket -> ByteString -> Thread ()
say s line = sendAll s (line <> "\n")

echoes :: Config -> (Socket -> Thread ()) -> Assertion
echoes c serve = running c . serving listening serve $ \_ address -> withScope $ \clients ->
  forM_ [1 .. 20 :: Int] $ \i -> forkIn clients . withClient address $ \s next ->
    replicateM_ 3 $ do
      say s (Char8.pack (show i))
      expect next [Char8.pack (show i)]

resets :: Config -> Assertion
resets c = running c . serving listening Clients.serve $ \_ address ->
  withClient address $ \stays next -> do
    replicateM_ 10 . withClient address $ \goes _ -> do
      say goes "something that nobody reads, so that the connection is reset"
      awaitReadable goes
    say stays "still here"
    expect next ["still here"]

cancelled :: Config -> Assertion
cancelled c = running c . serving listening Clients.serve $ \server address ->
  withClient address $ \s next -> do
    say s "hello"
    expect next ["hello"]
    cancel server
    expectEnd next

idle :: Config -> Assertion
idle c = running c . serving listening serve $ \_ address ->
  withClient address $ \_ next -> do
    expect next ["You have said nothing for a while. Goodbye."]
    expectEnd next
  where
    serve listener = serveOn defaultServeSettings listener (\client _ -> Idle.session (milliseconds 5) client)

primes :: Config -> Assertion
primes c = running c . serving listening serve $ \_ address ->
  withClient address $ \busy busyNext -> withClient address $ \other otherNext -> do
    say busy "30000"
    say other "100"
    expect otherNext ["25"]
    expect busyNext ["3245"]
    say other "0"
    expect otherNext ["0"]
    say other "many"
    expectEnd otherNext
  where
    serve listener = serveOn defaultServeSettings listener (\client _ -> Heavy.session client)

-- ----------------------------------------------------------------------------
-- Chat

type Session = Room -> Socket -> Thread ()

-- | The chat server until the event is set, which the part is given.
chatting :: Duration -> Thread Socket -> Session -> (Event.Event -> ThreadId -> SockAddr -> Thread a) -> Thread a
chatting grace open session body = do
  stop <- Event.newEvent
  room <- newRoom
  serving open (\listener -> serveRoom (Event.wait stop) grace listener room (session room)) (body stop)

-- | Join; the line that says so has been received by this client.
entering :: SockAddr -> ByteString -> (Socket -> Thread (Maybe ByteString) -> Thread a) -> Thread a
entering address name body = withClient address $ \s next -> do
  expect next ["Your name?"]
  say s name
  expect next [name <> " is here"]
  body s next

talk :: Config -> Session -> Assertion
talk c session = running c . chatting (seconds 5) listening session $ \_ _ address ->
  entering address "alice" $ \alice aliceNext -> do
    entering address "bob" $ \bob bobNext -> do
      expect aliceNext ["bob is here"]
      say alice "hello, bob"
      expect aliceNext ["alice: hello, bob"]
      expect bobNext ["alice: hello, bob"]
      -- Several lines at once, and one in two pieces.
      sendAll bob "one\r\ntwo\nthr"
      expect aliceNext ["bob: one", "bob: two"]
      say bob "ee"
      expect aliceNext ["bob: three"]
      expect bobNext ["bob: one", "bob: two", "bob: three"]
      withClient address $ \s next -> do
        expect next ["Your name?"]
        say s "alice"
        expect next ["That name is taken."]
        expectEnd next
      withClient address $ \s next -> do
        expect next ["Your name?"]
        say s "not a name"
        expect next ["Goodbye."]
        expectEnd next
      say bob "/quit"
      expectEnd bobNext
      expect aliceNext ["bob has left"]
    -- The name is free again.
    entering address "bob" $ \_ _ -> expect aliceNext ["bob is here"]
    expect aliceNext ["bob has left"]

vanishes :: Config -> Session -> Assertion
vanishes c session = running c . chatting (seconds 5) listening session $ \_ _ address ->
  entering address "alice" $ \alice aliceNext -> do
    entering address "bob" $ \bob _ -> do
      expect aliceNext ["bob is here"]
      say alice "look"
      -- Received and not read: the connection is reset, not closed.
      awaitReadable bob
      sendAll bob "half a li"
    expect aliceNext ["alice: look", "bob has left"]
    say alice "alone"
    expect aliceNext ["alice: alone"]

-- | With little memory in the system, so that it is full soon.
cramped :: Thread Socket
cramped = do
  listener <- listening
  listener <$ setOption listener SendBuffer 4096

slow :: Config -> Session -> Assertion
slow c session = running c . chatting (seconds 5) cramped session $ \_ _ address ->
  entering address "alice" $ \alice aliceNext -> do
    entering address "mole" $ \_ _ -> do
      expect aliceNext ["mole is here"]
      let untilThrownOut = do
            say alice (Char8.replicate 900 'x')
            line <- aliceNext
            unless (line == Just "mole has left") untilThrownOut
      untilThrownOut

signalled :: Config -> Session -> Assertion
signalled c session = running c . withSignals [sigTERM] $ \signals -> do
  room <- newRoom
  withSocket listening $ \listener -> do
    address <- localAddress listener
    ended <- spawn (serveRoom (void (nextSignal signals)) (seconds 60) listener room (session room))
    entering address "alice" $ \alice aliceNext -> entering address "bob" $ \_ bobNext -> do
      expect aliceNext ["bob is here"]
      say alice "last words"
      expect aliceNext ["alice: last words"]
      liftIO (raiseSignal sigTERM)
      expect aliceNext ["The server is going down."]
      expectEnd aliceNext
      expect bobNext ["alice: last words", "The server is going down."]
      expectEnd bobNext
      ended
      refused <- try (withClient address (\_ _ -> pure ()))
      either (\(_ :: IOError) -> pure ()) (\_ -> liftIO (assertFailure "it still accepts")) refused

limited :: Config -> Session -> Assertion
limited c session = inOneOf (milliseconds <$> [20, 200, 2000]) $ \grace -> running c . withSocket cramped $ \listener -> do
  stop <- Event.newEvent
  room <- newRoom
  address <- localAddress listener
  ended <- spawn (serveRoom (Event.wait stop) grace listener room (session room))
  entering address "alice" $ \alice _ -> do
    -- Alice does not read: her session waits to send. Fewer lines than throw her out.
    replicateM_ 60 (say alice (Char8.replicate 900 'x'))
    withClient address $ \_ next -> do
      expect next ["Your name?"]
      Event.set stop
      expect next ["Goodbye."]
      expectEnd next
      ended

deadlocked :: Assertion
deadlocked = do
  said <- newIORef []
  reports <- newIORef []
  outcome <-
    try . runWith Inside.watchful {settingReport = \r -> modifyIORef' reports (r :), settingUncaught = \_ _ _ -> pure ()} $
      Inside.stuck (\text -> modifyIORef' said (text :))
  either (\Deadlock -> pure ()) (\() -> assertFailure "no deadlock") outcome
  dump <- Text.unpack . Text.concat <$> readIORef said
  report <- concat <$> readIORef reports
  forM_ ["account of Alice", "account of Bob"] $ \name -> do
    assertBool dump (name `isInfixOf` dump)
    assertBool report (name `isInfixOf` report)

comingFrom :: Config -> Assertion
comingFrom c = do
  pair <- running c (ComingFrom.both (yield >> pure 'a') (pure 'b'))
  pair @?= ('a', 'b')
  logged <- newIORef []
  answer <- running c $ do
    (here, there) <- socketPair
    sendAll here "Ada"
    ComingFrom.session (ComingFrom.Env there (\l -> modifyIORef' logged (l :)))
    receive here 100
  answer @?= "Hello, Ada"
  readIORef logged >>= (@?= ["end", "begin"])
  -- The application over ReaderT, in both styles.
  forM_ [runReaderT ComingFrom.greetAll, direct . runReaderT ComingFrom.greetAll] $ \greeting -> do
    lines' <- newIORef []
    lengths <- running c $ do
      (here, there) <- socketPair
      sendAll here "Ada Grace"
      greeting (ComingFrom.Env there (\l -> atomicModifyIORef' lines' (\ls -> (l : ls, ()))))
    lengths @?= Just [3, 5]
    written <- readIORef lines'
    (take 1 written, sort written) @?= (["end"], ["Ada", "Grace", "begin", "end"])
  chosen <- running c $ do
    urgent <- newChannel 1
    normal <- newChannel 1
    send normal 'n'
    first <- ComingFrom.firstJob urgent normal
    send normal 'n' >> send urgent 'u'
    (,) first <$> ComingFrom.firstJob urgent normal
  chosen @?= (Right (Just 'n'), Left (Just 'u'))
  -- The threads from outside have ended too, so the end of the run is not delayed: the
  -- grace is longer than a test may take.
  runWith (settingsFor c) {settingGrace = seconds 60} ComingFrom.fromOutside >>= (@?= [1 .. 10])
