-- |
-- Description : Operations of the io_uring event source that are cancelled or forgotten
module Test.Uring.Cancelling (cancelling, forgetting) where

import Control.Exception (bracket)
import Control.Monad (forM_, replicateM_, void, when)
import Data.IORef (modifyIORef', newIORef, readIORef, writeIORef)
import Foreign.Marshal.Array (peekArray, withArray)
import Foreign.Ptr (nullPtr)
import Foreign.Storable (peek)
import Network.Socket qualified as N
import System.IO.Temp (withSystemTempDirectory)
import System.Random (mkStdGen, randomR)
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit (Assertion, assertBool, testCase, (@?=))
import Test.Uring.Rig
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor

cancelling, forgetting :: TestTree
cancelling =
  testGroup
    "cancelling"
    [ testCase "before, during and after" cancels,
      testCase "loses no byte in thousands of random cancellations" cancelStorm,
      testCase "of an accept loses no connection" cancelAccepts
    ]
forgetting =
  testGroup
    "forgetting"
    [ testCase "with nothing pending" forgetIdle,
      testCase "cancels, then closes; the number can be used again" forgetPending,
      testCase "the file of a send-file operation" forgetSource
    ]

-- Cancelling -------------------------------------------------------------------

cancels :: Assertion
cancels = withBackend $ \b -> withPair $ \x y _ -> withBytes 8 $ \p -> do
  -- Before the submission reached the kernel.
  early <- beginPending b (Receive x p 8)
  cancel b (tokenOf early)
  cancel b (tokenOf early)
  finish b early >>= (@?= eCANCELED)
  -- While it waits there.
  waiting <- beginPending b (Receive x p 8)
  _ <- poll b noWait
  cancel b (tokenOf waiting)
  finish b waiting >>= (@?= eCANCELED)
  -- When it has succeeded, but no poll has looked yet.
  raced <- beginPending b (Receive x p 8)
  _ <- poll b noWait
  sendBytes b y [42]
  cancel b (tokenOf raced)
  r <- finish b raced
  if r == eCANCELED
    then run b (Receive x p 8) >>= (@?= 1)
    else r @?= 1
  peek p >>= (@?= 42)
  -- When it is over: the token names nothing, and not its successor either.
  next <- beginPending b (Receive x p 8)
  cancel b (tokenOf raced)
  cancel b (tokenOf early)
  replicateM_ 3 (poll b noWait)
  resultOf next >>= (@?= Nothing)
  sendBytes b y [43]
  finish b next >>= (@?= 1)
  -- Between two stages, too.
  withPipe $ \rd wr closeR closeW -> do
    piped <- beginPending b (ReadStream rd p 8)
    _ <- poll b noWait
    cancel b (tokenOf piped)
    finish b piped >>= (@?= eCANCELED)
    withArray [1] $ \q -> run b (WriteStream wr q 1) >>= (@?= 1)
    run b (ReadStream rd p 8) >>= (@?= 1)
    closeR >> closeW

-- Every byte sent is received, in order, although receives are cancelled at random
-- moments: a receive that took bytes reports them.
cancelStorm :: Assertion
cancelStorm = withBackend $ \b -> withPair $ \x y _ -> withBytes 16 $ \p -> do
  cancelled <- newIORef (0 :: Int)
  late <- newIORef (0 :: Int)
  let rounds = 5000 :: Int
      expect n i = do
        bytes <- peekArray n p
        bytes @?= map fromIntegral (take n [i :: Int ..])
      go _ 0 _ received = pure received
      go g k sent received = do
        let (choice, g') = randomR (0, 7 :: Int) g
        r@(Running a _) <- begin b (Receive x p 3)
        when (choice >= 4) $ void (poll b noWait)
        wrote <-
          if even choice
            then 1 <$ sendBytes b y [fromIntegral sent]
            else pure (0 :: Int)
        when (choice == 2 || choice == 6) $ void (poll b noWait)
        when (isPending a) $ cancel b (answerToken a)
        n <- finish b r
        if n == eCANCELED
          then modifyIORef' cancelled (+ 1) >> go g' (k - 1) (sent + wrote) received
          else do
            when (isPending a) $ modifyIORef' late (+ 1)
            expect n received
            go g' (k - 1) (sent + wrote) (received + n)
      settle sent received
        | received == sent = pure ()
        | otherwise = do
            n <- run b (Receive x p 3)
            expect n received
            settle sent (received + n)
  received <- go (mkStdGen 7) rounds (0 :: Int) 0
  -- One more byte in each even round.
  let sent = length (filter even (choices rounds (mkStdGen 7)))
  settle sent received
  c <- readIORef cancelled
  l <- readIORef late
  assertBool ("both outcomes must occur: " <> show (c, l)) (c > 100 && l > 100)
  where
    choices 0 _ = []
    choices k g = let (c, g') = randomR (0, 7 :: Int) g in c : choices (k - 1 :: Int) g'

cancelAccepts :: Assertion
cancelAccepts = withBackend $ \b -> withListener $ \l port _ -> do
  accepted <- newIORef (0 :: Int)
  let note r = when (r >= 0) $ closeFd r >> modifyIORef' accepted (+ 1)
      rounds = 200 :: Int
  forM_ [1 .. rounds] $ \i -> do
    r@(Running a _) <- begin b (Accept l nullPtr nullPtr)
    when (even i) $ void (poll b noWait)
    bracket (N.socket N.AF_INET N.Stream N.defaultProtocol) N.close $ \c -> do
      N.connect c (N.SockAddrInet port loopback)
      when (isPending a) $ cancel b (answerToken a)
      finish b r >>= note
  let rest = do
        r@(Running a _) <- begin b (Accept l nullPtr nullPtr)
        if isPending a
          then cancel b (answerToken a) >> finish b r >>= note
          else finish b r >>= note >> rest
  rest
  readIORef accepted >>= (@?= rounds)

-- Forgetting -------------------------------------------------------------------

forgetIdle :: Assertion
forgetIdle = withBackend $ \b -> withPair $ \x _ _ -> do
  done <- newIORef False
  forget b x (writeIORef done True)
  readIORef done >>= (@?= True)

forgetPending :: Assertion
forgetPending = withBackend $ \b -> withBytes 8 $ \p -> do
  forM_ [1 .. 50 :: Int] $ \i -> withPipe $ \r w closeR closeW -> do
    closed <- newIORef False
    waiting <- beginPending b (ReadStream r p 8)
    also <- beginPending b (Await Reading r)
    when (even i) $ void (poll b noWait)
    forget b r (writeIORef closed True >> closeR)
    -- Not before its operations have retired, and nothing new meanwhile.
    readIORef closed >>= (@?= False)
    begin b (ReadStream r p 8) >>= resultOf >>= (@?= Just eBADF)
    finish b waiting >>= (@?= eCANCELED)
    finish b also >>= (@?= eCANCELED)
    readIORef closed >>= (@?= True)
    -- The number's next owner gets its own bytes.
    withPipe $ \r' w' closeR' closeW' -> do
      descriptorNumber r' @?= descriptorNumber r
      mine <- beginPending b (ReadStream r' p 8)
      _ <- poll b noWait
      resultOf mine >>= (@?= Nothing)
      withArray [5] $ \q -> run b (WriteStream w' q 1) >>= (@?= 1)
      finish b mine >>= (@?= 1)
      closeR' >> closeW'
    descriptorNumber w `seq` closeW

forgetSource :: Assertion
forgetSource = withBackend $ \b -> withSystemTempDirectory "weft" $ \dir -> withPair $ \x _ _ -> do
  fd <- open b (fromIntegral atFDCWD) (dir <> "/file") (oCREAT + oRDWR) 0
  f <- newDescriptor (fromIntegral fd)
  withBytes 65536 $ \p -> run b (WriteAt f p 65536 0) >>= (@?= 65536)
  let fill = begin b (SendFile x f 0 65536) >>= \r@(Running a _) -> if isPending a then pure r else fill
  blocked <- fill
  replicateM_ 3 (poll b noWait)
  resultOf blocked >>= (@?= Nothing)
  closed <- newIORef False
  forget b f (writeIORef closed True >> closeFd fd)
  finish b blocked >>= (@?= eCANCELED)
  readIORef closed >>= (@?= True)
