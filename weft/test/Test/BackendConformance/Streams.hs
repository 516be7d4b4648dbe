{-# LANGUAGE BlockArguments #-}
{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Streams and datagrams, and the ends of streams, on every backend
module Test.BackendConformance.Streams (streams, ends) where

import Control.Monad hiding (forever)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as BC
import Data.Foldable (for_)
import Data.IORef
import Data.Traversable (for)
import Foreign.C.Error
import Foreign.C.Types (CInt (..))
import Foreign.Marshal.Alloc (allocaBytes)
import Foreign.Marshal.Array (withArray)
import Foreign.Ptr (Ptr, castPtr, plusPtr)
import Foreign.Storable
import Test.BackendConformance.Support
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Internal.Os.Sys qualified as Sys

streams :: MakeBackend -> [TestTree]
streams make =
  [ rigged "what is there is received" make \rig -> withLink rig unixPair \l -> do
      poke' (far l) "hello"
      receiveBytes rig (near l) 100 >>= (@?= Right "hello"),
    rigged "a receive waits for its bytes" make \rig -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l ->
      withRoom 100 \p -> do
        r <- start rig (Receive (near l) p 100)
        replicateM_ 3 (turn rig noWait)
        readIORef (pendingResults r) >>= (@?= [])
        poke' (far l) "hello"
        finish rig "receive" r >>= (@?= 5)
        contents p 5 >>= (@?= "hello"),
    rigged "a send waits for room" make \rig -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l -> do
      let bytes = BC.replicate 8_000_000 'x'
      got <- withBytes bytes \p total -> sendThrough rig l total (\sent -> Send (near l) (p `plusPtr` sent) (total - sent))
      assertBool "what is received is what was sent" (got == bytes),
    rigged "pipes are read and written" make \rig -> withLink rig pipePair \l -> withRoom 10 \p -> do
      r <- start rig (ReadStream (near l) p 10)
      _ <- turn rig noWait
      n <- withBytes "abc" \q k -> perform rig (WriteStream (far l) q k)
      n @?= 3
      finish rig "read" r >>= (@?= 3)
      contents p 3 >>= (@?= "abc"),
    rigged "a full pipe is written when it has room" make \rig -> withLink rig pipePair \l -> do
      let block = B.replicate 4096 1
          fill = do
            n <- withBytes block (Sys.writeStream (descriptorNumber (far l)))
            when (n > 0) fill
      fill
      withBytes block \q k -> withRoom 65536 \p -> do
        w <- start rig (WriteStream (far l) q k)
        _ <- turn rig noWait
        readIORef (pendingResults w) >>= (@?= [])
        _ <- perform rig (ReadStream (near l) p 65536)
        finish rig "write" w >>= (@?= 4096),
    rigged "datagrams stay apart, and short ones hide none" make \rig -> withLink rig datagramPair \l -> do
      -- Register first: only then is there something that could be lost.
      withRoom 100 \p -> do
        r <- start rig (Receive (near l) p 100)
        _ <- turn rig noWait
        poke' (far l) "one"
        finish rig "datagram" r >>= (@?= 3)
      mapM_ (poke' (far l)) ["two", "three", "four"]
      _ <- turn rig noWait
      for_ ["two", "three", "four"] \expected -> receiveBytes rig (near l) 100 >>= (@?= Right expected),
    rigged "urgent data hides nothing after it" make \rig -> withLink rig tcpPair \l -> do
      withRoom 100 \p -> do
        r <- start rig (Receive (near l) p 100)
        _ <- turn rig noWait
        poke' (far l) "0"
        _ <- finish rig "first byte" r
        pure ()
      poke' (far l) "ab"
      _ <- withBytes "!" \p n -> c_send (descriptorNumber (far l)) (castPtr p) n msgOob
      poke' (far l) "de"
      _ <- turn rig noWait
      let gather got
            | B.length got >= 4 = pure got
            | otherwise =
                receiveBytes rig (near l) 100 >>= \case
                  Right bytes -> gather (got <> bytes)
                  Left r -> assertFailure (show r)
      gather "" >>= (@?= "abde"),
    rigged "messages with several parts" make \rig -> withLink rig unixPair \l ->
      withBytes "hello " \a n -> withBytes "world" \b m -> do
        sent <- withMessage [(castPtr a, n), (castPtr b, m)] (perform rig . SendMessage (near l))
        sent @?= 11
        withRoom 5 \p -> withRoom 20 \q -> do
          got <- withMessage [(castPtr p, 5), (castPtr q, 20)] (perform rig . ReceiveMessage (far l))
          got @?= 11
          (<>) <$> contents p 5 <*> contents q 6 >>= (@?= "hello world"),
    rigged "readiness can be awaited" make \rig -> withLink rig unixPair \l -> do
      perform rig (Await Writing (near l)) >>= assertBool "writable" . (>= 0)
      r <- start rig (Await Reading (near l))
      _ <- turn rig noWait
      readIORef (pendingResults r) >>= (@?= [])
      poke' (far l) "x"
      finish rig "readable" r >>= assertBool "readable" . (>= 0)
      perform rig (Await Reading (near l)) >>= assertBool "still readable" . (>= 0)
      receiveBytes rig (near l) 10 >>= (@?= Right "x"),
    rigged "two that wait are both served" make \rig -> withLink rig unixPair \l ->
      withRoom 1 \p -> withRoom 1 \q -> do
        a <- start rig (Receive (near l) p 1)
        b <- start rig (Receive (near l) q 1)
        _ <- turn rig noWait
        poke' (far l) "xy"
        finish rig "the first" a >>= (@?= 1)
        finish rig "the second" b >>= (@?= 1)
        both <- (<>) <$> contents p 1 <*> contents q 1
        B.sort both @?= "xy",
    rigged "both directions of one socket wait at a time" make \rig -> withLink rig unixPair \l -> withRoom 10 \p -> do
      let block = B.replicate 65536 1
          fill = do
            n <- withBytes block (Sys.send (descriptorNumber (near l)))
            when (n > 0) fill
      fill
      withBytes "x" \q n -> do
        r <- start rig (Receive (near l) p 10)
        w <- start rig (Send (near l) q n)
        _ <- turn rig noWait
        poke' (far l) "y"
        finish rig "receive" r >>= (@?= 1)
        readIORef (pendingResults w) >>= (@?= [])
        -- All of it: a Unix socket is writable again when it is mostly empty.
        withRoom 1_000_000 \drain -> do
          let empty = do
                k <- Sys.recv (descriptorNumber (far l)) drain 1_000_000
                when (k > 0) empty
          empty
        finish rig "send" w >>= (@?= 1),
    rigged "two thousand descriptors" make \rig -> do
      links <- replicateM 2_000 unixPair
      withRoom (8 * 2_000) \room -> do
        rs <- for (zip [0 ..] links) \(i, l) -> start rig (Receive (near l) (room `plusPtr` (8 * i)) 8)
        _ <- turn rig noWait
        for_ (zip [0 :: Int ..] links) \(i, l) -> poke' (far l) (BC.pack (show i))
        for_ (zip3 [0 :: Int ..] links rs) \(i, _, r) -> do
          n <- finish rig "receive" r
          contents (room `plusPtr` (8 * i)) n >>= (@?= BC.pack (show i))
      for_ links \l -> mapM_ (release rig) [near l, far l]
  ]

ends :: MakeBackend -> [TestTree]
ends make =
  [ rigged (label <> ", buffer of " <> show size) make \rig ->
      for_ (merges [Write "abc", Write "de", Shut] [Collect, Take, Collect, Take]) \script -> do
        for_ [False, True] \registered -> withLink rig pair \l -> withRoom size \p -> do
          current <- newIORef Nothing
          got <- newIORef ""
          ended <- newIORef False
          let operation = (if label == "pipe" then ReadStream else Receive) (near l) p size
              begin = do
                over <- readIORef ended
                waits <- readIORef current
                when (not over && null waits) do
                  start rig operation >>= writeIORef current . Just
                  settleCurrent
              -- Account for the current read, if it has its result.
              settleCurrent =
                readIORef current >>= mapM_ \r ->
                  readIORef (pendingResults r) >>= \case
                    [] -> pure ()
                    [0] -> writeIORef current Nothing >> writeIORef ended True
                    [n] | n > 0 -> do
                      bytes <- contents p n
                      modifyIORef' got (<> bytes)
                      writeIORef current Nothing
                    rs -> assertFailure (show script <> ": " <> show rs)
          when registered do
            begin
            void (turn rig noWait)
          for_ script \case
            Write bytes -> poke' (far l) bytes
            Shut -> closeNow (far l)
            Collect -> turn rig noWait >> settleCurrent
            Take -> begin
          turnUntil rig (show script <> if registered then ", registered" else "") do
            let advance = do
                  begin
                  settleCurrent
                  over <- readIORef ended
                  waits <- readIORef current
                  if over || not (null waits) then pure over else advance
            advance
          readIORef got >>= assertEqual (show script) "abcde"
    | (label, pair) <- [("unix", unixPair), ("tcp", tcpPair), ("pipe", pipePair)],
      size <- [2, 3, 5, 64]
  ]
    <> [ rigged "half-close leaves the other direction" make \rig -> for_ [unixPair, tcpPair] \pair -> withLink rig pair \l -> withRoom 10 \p -> do
           r <- start rig (Receive (near l) p 10)
           _ <- turn rig noWait
           _ <- c_shutdown (descriptorNumber (far l)) 1
           finish rig "end of stream" r >>= (@?= 0)
           sendAll rig (near l) "still here"
           receiveBytes rig (far l) 100 >>= (@?= Right "still here")
           receiveBytes rig (near l) 100 >>= (@?= Right ""),
         rigged "a reset reaches those who wait" make \rig -> withLink rig tcpPair \l -> withRoom 10 \p -> do
           r <- start rig (Receive (near l) p 10)
           _ <- turn rig noWait
           withArray [1, 0 :: CInt] \linger ->
             void $ c_setsockopt (descriptorNumber (far l)) 1 13 (castPtr linger) 8
           closeNow (far l)
           finish rig "reset" r >>= (@?= code eCONNRESET)
           n <- withBytes "x" \q k -> perform rig (Send (near l) q k)
           n @?= code ePIPE,
         rigged "a send to nobody fails and raises no signal" make \rig -> withLink rig unixPair \l -> do
           closeNow (far l)
           n <- withBytes "x" \q k -> perform rig (Send (near l) q k)
           n @?= code ePIPE,
         rigged "a write to a pipe without readers fails" make \rig -> withLink rig pipePair \l -> do
           closeNow (near l)
           n <- withBytes "x" \q k -> perform rig (WriteStream (far l) q k)
           n @?= code ePIPE
       ]

-- | A step of the script of an end of stream.
data Step
  = -- | The other side writes.
    Write ByteString
  | -- | The other side closes.
    Shut
  | -- | Events are collected.
    Collect
  | -- | A read begins, unless one waits.
    Take
  deriving stock (Show)

-- | All interleavings of two scripts.
merges :: [a] -> [a] -> [[a]]
merges [] ys = [ys]
merges xs [] = [xs]
merges (x : xs) (y : ys) = map (x :) (merges xs (y : ys)) <> map (y :) (merges (x : xs) ys)

-- | A @struct msghdr@ for these pieces of memory.
withMessage :: [(Ptr (), Int)] -> (Ptr () -> IO a) -> IO a
withMessage pieces use = allocaBytes (16 * length pieces) \vector -> allocaBytes 56 \header -> do
  for_ (zip [0 ..] pieces) \(i, (p, n)) -> do
    pokeByteOff vector (16 * i) p
    pokeByteOff vector (16 * i + 8) n
  for_ [0, 8 .. 48] \offset -> pokeByteOff header offset (0 :: Int)
  pokeByteOff header 16 vector
  pokeByteOff header 24 (length pieces)
  use header

msgOob :: CInt
msgOob = 1

foreign import ccall unsafe "send" c_send :: CInt -> Ptr () -> Int -> CInt -> IO Int

foreign import ccall unsafe "shutdown" c_shutdown :: CInt -> CInt -> IO CInt

foreign import ccall unsafe "setsockopt" c_setsockopt :: CInt -> CInt -> CInt -> Ptr () -> CInt -> IO CInt
