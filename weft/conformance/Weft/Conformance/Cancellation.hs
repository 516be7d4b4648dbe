{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Cancelling threads, wherever they wait
--
-- Every system call that waits is cancelled under every masking state, by a thread of
-- the same worker and of another; and calls that end by themselves are cancelled at any
-- time, and lose nothing. Races are in "Weft.Conformance.Races", masses in
-- "Weft.Conformance.Storms".
module Weft.Conformance.Cancellation (cancellation) where

import Control.Concurrent.MVar
import Control.Exception (SomeException, fromException)
import Control.Monad (forM_, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import System.Posix.Signals (sigUSR2)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.File
import Weft.Mask (MaskingState (..), getMaskingState, mask_, uninterruptibleMask_)
import Weft.Pipe
import Weft.Signal
import Weft.Socket
import Weft.Time (minutes)

-- | Cancellation of single calls.
cancellation :: World -> TestTree
cancellation world =
  testGroup
    "cancellation"
    [ testGroup "every call that waits, under every mask" [inDirectory world (waitName w) (waits world w) | w <- everyWait world],
      testGroup "a cancellation that comes too late loses nothing" (late world)
    ]

-- | A call that waits for ever.
data WaitCase = WaitCase
  { waitName :: String,
    -- | Make what it needs, in a directory; the call, something that makes it return or
    -- fail, and the release of what it needed.
    waitMake :: ByteString -> Thread (Thread (), Thread (), Thread ())
  }

everyWait :: World -> [WaitCase]
everyWait world =
  connections <> transfers <> pipes world <> others world

connections :: [WaitCase]
connections =
  [ WaitCase "accept" $ \_ -> do
      (l, address) <- listenLocal 16
      pure (void (accept l >>= closeSocket . fst), connectAndClose address, closeSocket l),
    WaitCase "accept with a time limit" $ \_ -> do
      (l, address) <- listenLocal 16
      pure (void (acceptBefore (minutes 60) l >>= mapM_ (closeSocket . fst)), connectAndClose address, closeSocket l),
    WaitCase "connect" $ \_ -> do
      -- The backlog is full, so the peer does not answer.
      (l, address) <- listenLocal 0
      first <- openSocket AF_INET Stream
      connectBefore (seconds 5) first address
      s <- openSocket AF_INET Stream
      pure (connect s address, closeSocket s, mapM_ closeSocket [l, first, s])
  ]
  where
    connectAndClose address = withSocket (openSocket AF_INET Stream) (`connect` address)

transfers :: [WaitCase]
transfers =
  [ WaitCase "receive" $ \dir -> do
      (a, b) <- unixPair dir
      pure (void (receive a 10), sendAll b "x", mapM_ closeSocket [a, b]),
    WaitCase "send" $ \dir -> do
      (a, b) <- fullPair dir
      pure (void (send a "more"), closeSocket b, mapM_ closeSocket [a, b]),
    WaitCase "send of several pieces" $ \dir -> do
      (a, b) <- fullPair dir
      pure (void (sendVector a ["more", "and more"]), closeSocket b, mapM_ closeSocket [a, b]),
    WaitCase "receive a datagram" $ \_ -> do
      s <- openSocket AF_INET Datagram
      bind s (localHost 0)
      address <- localAddress s
      pure (void (receiveFrom s 100), sendTo s "x" address, closeSocket s),
    WaitCase "send a file" $ \dir -> do
      (a, b) <- fullPair dir
      file <- openFile (dir <> "/file") ReadWrite
      setFileSize file 1_000_000
      pure (void (sendFile a file 0 1_000_000), closeSocket b, mapM_ closeSocket [a, b] >> closeFile file),
    WaitCase "wait until readable" $ \dir -> do
      (a, b) <- unixPair dir
      pure (awaitReadable a, sendAll b "x", mapM_ closeSocket [a, b]),
    WaitCase "wait until writable" $ \dir -> do
      (a, b) <- fullPair dir
      pure (awaitWritable a, closeSocket b, mapM_ closeSocket [a, b])
  ]

pipes :: World -> [WaitCase]
pipes world =
  [ WaitCase "read a pipe" $ \_ -> do
      (r, w) <- openPipe
      pure (void (readPipe r 10), writePipe w "x", mapM_ closePipe [r, w]),
    WaitCase "write to a pipe" $ \_ -> do
      (r, w) <- openPipe
      fillUp (writePipe w (ByteString.replicate 1_000_000 0))
      pure (writePipe w "more", closePipe r, mapM_ closePipe [r, w])
  ]
    <> [ WaitCase "read a FIFO" $ \dir -> do
           let path = dir <> "/fifo"
           make path
           r <- openFifo (Char8.unpack path) ReadOnly
           w <- openFifo (Char8.unpack path) WriteOnly
           pure (void (readPipe r 10), writePipe w "x", mapM_ closePipe [r, w] >> removePath path)
         | Just make <- [worldFifo world]
       ]

others :: World -> [WaitCase]
others world =
  [ -- One that no cancellation ends must end by itself; any other would not, in the time
    -- that a busy machine takes to cancel it.
    WaitCase "sleep" $ \_ -> do
      let asleep = getMaskingState >>= \s -> sleep (if s == MaskedUninterruptible then milliseconds 50 else minutes 10)
      pure (asleep, pure (), pure ()),
    WaitCase "the next signal" $ \_ -> do
      s <- openSignals [sigUSR2]
      pure (void (nextSignal s), closeSignals s, closeSignals s),
    WaitCase "suspend" $ \_ -> do
      gate <- newGate
      pure (waitGate gate, openGate gate (), pure ())
  ]
    <> [ WaitCase "a blocking action that runs" $ \_ -> do
           box <- liftIO newEmptyMVar
           pure (blocking (takeMVar box), liftIO (putMVar box ()), pure ())
         | worldBeside world
       ]

waits :: World -> WaitCase -> ByteString -> Thread ()
waits world w dir = do
  -- The first wait may make what stays, such as a pool thread.
  forM_ [0 .. worldWorkers world - 1] $ \there -> do
    forM_ [id, mask_] $ \masked -> do
      (act, _, release) <- waitMake w dir
      result <- newGate
      t <- forkWith defaultForkOptions {forkWorker = Just there} (try (masked act) >>= openGate result)
      eventually "it to wait" (waitsOrEnded t)
      cancel t
      r <- waitGate result
      outcome r `is` "Cancelled"
      release
    -- Uninterruptible: it goes on until it is answered, and the cancellation
    -- comes after it.
    (act, answer, release) <- waitMake w dir
    begun <- newGate
    result <- newGate
    afterwards <- newGate
    t <- forkWith defaultForkOptions {forkWorker = Just there} $ do
      uninterruptibleMask_ (openGate begun () >> try act >>= openGate result)
      -- It may still be on its way here.
      try block >>= openGate afterwards
    waitGate begun
    replicateM_ 5 yield
    cancel t
    replicateM_ 5 yield
    answer
    r <- waitGate result
    holds "cancelled although uninterruptible" (outcome r /= "Cancelled")
    waitGate afterwards >>= (`is` "Cancelled") . outcome
    release
  where
    outcome :: Either SomeException () -> String
    outcome = \case
      Right () -> "answered"
      Left e | Just Cancelled <- fromException e -> "Cancelled"
      Left e -> show e

-- | Calls that end by themselves. A cancellation comes at any time: the call has its
-- result, or the thread was cancelled and what the call would have opened is not open.
late :: World -> [TestTree]
late world =
  [ inDirectory world "opening files" $ \dir -> do
      let path = dir <> "/f"
      withFile path WriteOnly (\_ -> pure ())
      races (\_ -> mask_ (openFile path ReadOnly >>= closeFile')),
    inDirectory world "reading, writing and syncing files" $ \dir -> do
      let path = dir <> "/f"
      races (\i -> mask_ (bracket (openFile path ReadWrite) closeFile' (\f -> if odd i then writeAt f 0 "x" >> sync f else void (readAt f 0 10)))),
    inDirectory world "making, renaming and removing" $ \dir -> do
      races $ \i -> do
        let path = dir <> "/" <> Char8.pack (show i)
        mask_ (makeDirectory path >> renamePath path (path <> "'") >> removePath (path <> "'")),
    conforms world "opening sockets and pipes" . races $ \i ->
      mask_ $
        if odd i
          then withSocket (openSocket AF_INET Stream) (\_ -> pure ())
          else bracket openPipe (\(r, w) -> closePipe r >> closePipe w) (\_ -> pure ()),
    conforms world "names" (races (\_ -> void (resolve Nothing (Just "127.0.0.1") (Just "80")))),
    conforms world "blocking actions that are queued or run" (races (\_ -> blocking (pure ())))
  ]
  where
    closeFile' f = uninterruptibleMask_ (closeFile f)
    races act =
      forM_ [1 .. worldRounds world 200] $ \i -> do
        result <- newGate
        t <- forkWith defaultForkOptions {forkWorker = Just i} (try (act i) >>= openGate result)
        replicateM_ (i `mod` 4) yield
        cancel t
        r <- waitGate result
        case r of
          Right () -> pure ()
          Left e | Just Cancelled <- fromException e -> pure ()
          Left e -> liftIO (assertFailure (show (e :: SomeException)))
