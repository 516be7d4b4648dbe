-- |
-- Description : Checks within a thread
--
-- Assertions about what a thread has got, about errors, and about the order in which
-- things happened.
module Weft.Conformance.Check
  ( -- * Values
    is,
    (===>),
    holds,
    moving,

    -- * Errors
    failsWith,
    failsNaming,
    throws,
    eCANCELED,

    -- * Order
    newLog,
    newCounter,

    -- * Chance
    Dice,
    newDice,
    roll,
  )
where

import Control.Monad (unless)
import Data.Bits (shiftR)
import Data.IORef
import Data.List (isInfixOf)
import Data.Word (Word64)
import Foreign.C.Error (Errno (..))
import GHC.IO.Exception (ioe_errno)
import Test.Tasty.HUnit
import Weft
import Weft.Conformance.World

-- | The value must be this one.
is :: (HasCallStack, Eq a, Show a) => a -> a -> Thread ()
is got wanted = liftIO (got @?= wanted)

-- | The thread must answer this.
(===>) :: (HasCallStack, Eq a, Show a) => Thread a -> a -> Thread ()
action ===> wanted = action >>= (`is` wanted)

infix 1 ===>

-- | This must be true; the text says what it is.
holds :: (HasCallStack) => String -> Bool -> Thread ()
holds what condition = liftIO (assertBool what condition)

-- | The given number of bytes must be moved, by the action that moves those after a given number: at
-- once, or with several calls where one may move less.
moving :: (HasCallStack) => World -> Int -> (Int -> Thread Int) -> Thread ()
moving world wanted move = move 0 >>= go
  where
    go n
      | worldCuts world && n > 0 && n < wanted = move n >>= \more -> if more == 0 then n `is` wanted else go (n + more)
      | otherwise = n `is` wanted

-- | The action must fail with one of these @errno@s.
failsWith :: (HasCallStack) => [Errno] -> Thread a -> Thread ()
failsWith wanted action =
  try action >>= \case
    Right _ -> liftIO (assertFailure "it should have failed")
    Left e ->
      holds ("unexpected error: " <> show e <> " " <> show (ioe_errno e)) $
        ioe_errno e `elem` [Just n | Errno n <- wanted]

-- | The action must fail with an error that says this.
failsNaming :: (HasCallStack) => String -> Thread a -> Thread ()
failsNaming text action =
  try action >>= \case
    Right _ -> liftIO (assertFailure "it should have failed")
    Left e -> unless (text `isInfixOf` show (e :: IOError)) $ liftIO (assertFailure ("the error says " <> show e))

-- | It must have failed with an exception of which this holds.
throws :: (HasCallStack, Show e) => (e -> Bool) -> Either e a -> Thread ()
throws expected = \case
  Right _ -> liftIO (assertFailure "it should have failed")
  Left e -> holds ("unexpected: " <> show e) (expected e)

-- | The failure of an operation that was cancelled (on Linux).
eCANCELED :: Errno
eCANCELED = Errno 125

-- | A log that threads of all workers write, and what it says.
newLog :: IO (String -> Thread (), IO [String])
newLog = do
  events <- newIORef []
  pure (\what -> liftIO (atomicModifyIORef' events (\es -> (what : es, ()))), reverse <$> readIORef events)

-- | A number that threads of all workers count up, and what it is.
newCounter :: Thread (Thread (), Thread Int)
newCounter = do
  ref <- liftIO (newIORef 0)
  pure (liftIO (atomicModifyIORef' ref (\n -> (n + 1, ()))), liftIO (readIORef ref))

-- | A fixed sequence of numbers that look random.
newtype Dice = Dice (IORef Word64)

-- | The sequence with this number.
newDice :: Int -> Thread Dice
newDice seed = liftIO (Dice <$> newIORef (fromIntegral seed * 2654435761 + 1))

-- | The next number below this one.
roll :: Dice -> Int -> Thread Int
roll (Dice ref) below = liftIO . atomicModifyIORef' ref $ \state ->
  let next = state * 6364136223846793005 + 1442695040888963407
   in (next, fromIntegral (next `shiftR` 33) `mod` below)
