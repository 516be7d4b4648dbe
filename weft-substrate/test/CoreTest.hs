-- |
-- Description : Stacks, masks and errors of use
module CoreTest (tests, onHEC) where

import Control.Concurrent
import Control.Exception
import Control.Monad
import Data.IORef
import Foreign.Ptr (Ptr)
import Foreign.Storable (peek)
import System.IO.Unsafe (unsafePerformIO)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Substrate
import Weft.Substrate.Internal.Transaction (unsafeIOToPTM)

tests :: TestTree
tests =
  testGroup
    "stacks and HECs"
    [ testCase "outside of a HEC" outside,
      testCase "an in-call that ends elsewhere has no result" endsElsewhere,
      testCase "what a stack throws ends its HEC" throwsOut,
      testCase "an in-call inside of an in-call" nested,
      testCase "a switch that cannot be is an error, with nothing written" cannot,
      testCase "a switch inside a lazy value is an error, with nothing written" lazily,
      testCase "bracket and mask across switches" masks,
      testCase "a sleep inside a lazy value, inside a transaction" sleepsInside,
      testCase "a ring of 20,000 stacks" ring,
      testCase "a long transaction beside short ones" long,
      testCase "a switch that has failed often leaves no quiet that it has asked for" quietEnds,
      testCase "two HECs lose no increment" increments,
      testCase "waitCond" waits,
      testCase "the workshop's stacks" workshop
    ]

-- | The result of an action on a HEC.
onHEC :: IO a -> IO a
onHEC act = inCall act >>= maybe (assertFailure "the HEC ended in another stack") pure

outside :: Assertion
outside = do
  v <- newPVarIO 'a'
  atomicPTM (writePVar v 'b')
  readPVarIO v >>= (@?= 'b')
  try (atomicPTM getHEC) >>= either (@?= NotOnHEC) (const (assertFailure "a HEC"))
  try (switch getStackId) >>= (@?= Left NotOnHEC)

endsElsewhere :: Assertion
endsElsewhere = do
  r <- inCall $ do
    t <- newStack (pure ())
    switch (pure t)
  r @?= Nothing
  inCall (pure 'x') >>= (@?= Just 'x')

throwsOut :: Assertion
throwsOut = do
  r <- try . inCall $ do
    t <- newStack (throwIO (ErrorCall "out"))
    switch (pure t)
  either (\(ErrorCall e) -> e @?= "out") (const (assertFailure "no exception")) r

nested :: Assertion
nested = onHEC $ do
  outer <- atomicPTM getHEC
  me <- atomicPTM getStackId
  (inner, t) <- onHEC ((,) <$> atomicPTM getHEC <*> atomicPTM getStackId)
  assertBool "another HEC" (inner /= outer && inner > outer)
  assertBool "another stack" (t /= me)
  again <- atomicPTM getHEC
  again @?= outer

cannot :: Assertion
cannot = onHEC $ do
  v <- newPVarIO (0 :: Int)
  me <- atomicPTM getStackId
  t <- newStack (switch (pure me))
  switch (pure t)
  other <- newStack (switch (writePVar v 1 >> pure me))
  -- Its second half is never entered.
  switch (pure other)
  readPVarIO v >>= (@?= 1)
  used <- newStack (switch (pure me) >> fail "entered twice")
  switch (pure used)
  done <- newIORef (0 :: Int)
  ending <- newStack (modifyIORef' done (+ 1) >> switch (pure me))
  switch (pure ending)
  -- A stack that runs: that of this test, seen from another HEC.
  r <- newEmptyMVar
  forkHEC (try (switch (writePVar v 2 >> pure me)) >>= putMVar r)
  takeMVar r >>= (@?= Left NotSuspended)
  readPVarIO v >>= (@?= 1)

lazily :: Assertion
lazily = onHEC $ do
  v <- newPVarIO (0 :: Int)
  t <- newStack (pure ())
  let value = unsafePerformIO (switch (writePVar v 1 >> pure t) >> pure 'x')
      {-# NOINLINE value #-}
  r <- try (evaluate value)
  r @?= Left CannotSwitch
  readPVarIO v >>= (@?= 0)
  -- Where it ends a stack it has that name for all handlers, and not the one that GHC gives it.
  ended <- try (inCall (evaluate value))
  either (show :: SomeException -> String) show ended @?= show CannotSwitch

-- The inner transaction is one of its own; while it sleeps nothing of the outer one is written.
sleepsInside :: Assertion
sleepsInside = do
  go <- newPVarIO False
  sleeper <- newPVarIO Nothing
  v <- newPVarIO 'a'
  seen <- newEmptyMVar
  forkHEC $ do
    let whoSleeps = readPVarIO sleeper >>= maybe (yield >> whoSleeps) pure
    h <- whoSleeps
    readPVarIO v >>= putMVar seen
    atomicPTM (writePVar go True >> wakeupHEC h)
  r <- onHEC . atomicPTM $ do
    writePVar v 'b'
    let inner = unsafePerformIO . waitCond $ do
          woken <- readPVar go
          if woken then pure (Just 'x') else Nothing <$ (getHEC >>= writePVar sleeper . Just)
        {-# NOINLINE inner #-}
    x <- readPVar v
    inner `seq` pure [x, inner]
  r @?= "bx"
  takeMVar seen >>= (@?= 'a')
  readPVarIO v >>= (@?= 'b')

masks :: Assertion
masks = do
  events <- newIORef []
  let say x = modifyIORef' events (x :)
  onHEC $ do
    home <- atomicPTM getStackId
    queue <- newPVarIO []
    let yield' = switch $ do
          me <- getStackId
          readPVar queue >>= \case
            [] -> pure me
            t : ts -> writePVar queue (ts <> [me]) >> pure t
    t <- newStack $ do
      getMaskingState >>= say . show
      bracket (yield' >> getMaskingState) (\s -> yield' >> say ("release, acquired " <> show s)) $ \_ -> do
        getMaskingState >>= say . show
        yield'
        void (throwIO (ErrorCall "thrown")) `catch` \(ErrorCall e) -> yield' >> say e
        uninterruptibleMask_ (yield' >> getMaskingState >>= say . show)
        yield'
        getMaskingState >>= say . show
      switch (pure home)
    atomicPTM (writePVar queue [t])
    replicateM_ 7 yield'
    getMaskingState >>= say . ("home " <>) . show
  said <- readIORef events
  reverse said
    @?= [ "Unmasked",
          "Unmasked",
          "thrown",
          "MaskedUninterruptible",
          "Unmasked",
          "release, acquired MaskedInterruptible",
          "home Unmasked"
        ]

ring :: Assertion
ring = do
  count <- newIORef (0 :: Int)
  onHEC $ do
    home <- atomicPTM getStackId
    front <- newPVarIO []
    behind <- newPVarIO []
    let next =
          readPVar front >>= \case
            t : ts -> writePVar front ts >> pure t
            [] ->
              readPVar behind >>= \b -> case reverse b of
                t : ts -> writePVar behind [] >> writePVar front ts >> pure t
                [] -> pure home
        turn = switch (getStackId >>= \me -> readPVar behind >>= writePVar behind . (me :) >> next)
    stacks <- replicateM 20000 (newStack (replicateM_ 3 (modifyIORef' count (+ 1) >> turn) >> switch next))
    atomicPTM (writePVar front stacks)
    switch next
  readIORef count >>= (@?= 60000)

long :: Assertion
long = do
  vs <- replicateM 64 (newPVarIO (0 :: Int))
  stop <- newIORef False
  ended <- newEmptyMVar
  _ <- forkIO $ do
    let go = do
          atomicPTM (forM_ (take 2 vs) (\v -> readPVar v >>= \x -> writePVar v $! x + 1))
          s <- readIORef stop
          unless s go
    go
    putMVar ended ()
  -- Those two are always the same, and the rest are zero.
  sums <- replicateM 200 (atomicPTM (sum <$> mapM readPVar vs))
  writeIORef stop True
  takeMVar ended
  assertBool "an even sum" (all even sums)

-- Each of the first attempts has what it has read changed, and sees it at its next read.
quietEnds :: Assertion
quietEnds = do
  -- The wait that a transaction asked for before it was given up is over after 16 milliseconds at most.
  let over = mustWait >>= \n -> unless (n == 0) over
  over
  v <- newPVarIO (0 :: Int)
  w <- newPVarIO ()
  attempts <- newIORef (0 :: Int)
  onHEC $ do
    me <- atomicPTM getStackId
    back <- newStack (switch (pure me))
    switch $ do
      _ <- readPVar v
      n <- unsafeIOToPTM (atomicModifyIORef' attempts (\k -> (k + 1, k)))
      when (n < 12) (unsafeIOToPTM (atomicPTM (writePVar v n)))
      readPVar w
      pure back
  readIORef attempts >>= (@?= 13)
  peek quiet >>= (@?= 0)

foreign import ccall unsafe "weft_substrate_must_wait" mustWait :: IO Int

foreign import ccall "&weft_substrate_quiet" quiet :: Ptr Int

increments :: Assertion
increments = do
  v <- newPVarIO (0 :: Int)
  w <- newPVarIO (0 :: Int)
  ends <- replicateM 3 $ do
    end <- newEmptyMVar
    forkHEC $ do
      replicateM_ 3000 (atomicPTM (readPVar v >>= \x -> writePVar v (x + 1) >> readPVar w >>= \y -> if x /= y then throwPTM (ErrorCall "torn") else writePVar w $! y + 1))
      putMVar end ()
    pure end
  mapM_ takeMVar ends
  readPVarIO v >>= (@?= 9000)
  readPVarIO w >>= (@?= 9000)

waits :: Assertion
waits = do
  v <- newPVarIO Nothing
  hec <- newPVarIO Nothing
  forkHEC (atomicPTM (writePVar v (Just 'x') >> readPVar hec >>= mapM_ wakeupHEC))
  x <- onHEC (waitCond (getHEC >>= writePVar hec . Just >> readPVar v))
  x @?= 'x'

-- Two stacks that hand each other over, as in the 2007 version.
workshop :: Assertion
workshop = do
  said <- newIORef ""
  let say c = modifyIORef said (c :)
  r <- inCall $ do
    place <- newPVarIO Nothing
    let handOver = switchWith $ \me ->
          readPVar place >>= \case
            Just other -> other <$ writePVar place (Just me)
            Nothing -> pure me
    other <- newSCont (say 'b' >> handOver >> say 'd' >> handOver)
    atomicPTM (writePVar place (Just other))
    say 'a' >> handOver >> say 'c' >> handOver >> say 'e'
  r @?= Just ()
  readIORef said >>= (@?= "edcba")
