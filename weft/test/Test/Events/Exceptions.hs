{-# LANGUAGE BlockArguments #-}

-- |
-- Description : Callbacks that throw, on every source
module Test.Events.Exceptions
  ( exceptions,
  )
where

import Control.Concurrent (forkIO, killThread)
import Control.Concurrent.MVar
import Control.Exception
import Control.Monad (forM_, replicateM, void)
import Data.List (sort)
import System.IO.Error (ioeGetErrorString)
import Test.Events.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.EventManager
import Weft.Internal.Data.Time

-- | One rule for all callbacks: what one throws reaches the caller, and the others run.
exceptions :: Rig -> TestTree
exceptions rig =
  testGroup "exceptions" $
    [ testCase "of descriptors, closes and timeouts reach the caller of loop, one by one" $ withRig rig \m new _ -> do
        links <- replicateM 2 new
        gone <- new
        forM_ (zip ["first descriptor", "second descriptor"] links) \(name, link) -> do
          fill link
          register m (linkNear link) toRead OneShot \_ _ -> failure name
        forM_ ["first close", "second close"] \name ->
          register m (linkNear gone) toRead OneShot \_ _ -> failure name
        forM_ ["first timeout", "second timeout"] (setTimeout m (nanoseconds 0) . failure)
        closeWith m (linkNear gone) (closeNear gone)
        thrown <- replicateM 6 (thrownBy (loop m))
        sort thrown
          @?= ["first close", "first descriptor", "first timeout", "second close", "second descriptor", "second timeout"]
        settled m >>= (@?= 0)
        mapM_ release (gone : links),
      testCase "leave a callback that is to run after them its right to be cancelled" $ withRig rig \m _ _ -> do
        (note, noted) <- collecting
        _ <- setTimeout m (nanoseconds 0) (failure "first")
        second <- setTimeout m (nanoseconds 0) (note 'b')
        third <- setTimeout m (nanoseconds 0) (note 'c')
        thrownBy (loop m) >>= (@?= "first")
        cancelTimeout second >>= (@?= True)
        updateTimeout third (milliseconds 1) >>= (@?= True)
        _ <- settled m
        until' m "the third" ((== "c") <$> noted),
      testCase "of those who hear that the manager is freed: all hear it, and the first is thrown" do
        (source, new, _) <- rigMake rig
        (note, noted) <- collecting
        m <- newEventManager source
        links <- replicateM 3 new
        forM_ (zip "abc" links) \(name, link) ->
          register m (linkNear link) toRead OneShot \_ _ -> note name >> failure [name]
        thrown <- thrownBy (freeEventManager m)
        heard <- noted
        sort heard @?= "abc"
        thrown @?= take 1 heard
        mapM_ release links,
      testCase "an asynchronous one ends the callback that runs, and no other" $ withRig rig \m _ _ -> do
        (note, noted) <- collecting
        begun <- newEmptyMVar
        ended <- newEmptyMVar
        _ <- setTimeout m (nanoseconds 0) (putMVar begun () >> newEmptyMVar >>= takeMVar)
        forM_ "ab" (setTimeout m (nanoseconds 0) . note)
        stepper <- forkIO (try (loop m) >>= putMVar ended)
        takeMVar begun
        killThread stepper
        takeMVar ended >>= either (@?= ThreadKilled) pure
        void (settled m)
        noted >>= (@?= "ab")
    ]
      <> [testCase "end withLoop" endsLoop | rigIsReal rig]
      <> [testCase "end withLoop where nothing can be thrown into its action" endsAction | rigIsReal rig]
  where
    -- A script has no loop that waits for what is still to come: it refuses to.
    endsLoop = do
      (source, _, _) <- rigMake rig
      thrown <- thrownBy $ withLoop source \m -> do
        _ <- setTimeout m (nanoseconds 0) (failure "in the loop")
        newEmptyMVar >>= takeMVar
      thrown @?= "in the loop"
    endsAction = do
      (source, _, _) <- rigMake rig
      begun <- newEmptyMVar
      thrown <- uninterruptibleMask_ . thrownBy $ withLoop source \m -> do
        _ <- setTimeout m (nanoseconds 0) (putMVar begun () >> failure "in the loop")
        takeMVar begun
      thrown @?= "in the loop"

failure :: String -> IO a
failure = ioError . userError

-- | The text of the exception that it throws.
thrownBy :: IO a -> IO String
thrownBy act = try act >>= either (pure . ioeGetErrorString) (const (pure "nothing"))
