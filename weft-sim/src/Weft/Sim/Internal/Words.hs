{-# OPTIONS_HADDOCK not-home #-}

-- | Numbers and flags in one piece of memory, which each step reads and writes: a variable with an
-- 'Int' would be made anew for each write, and tested for being evaluated at each read.
module Weft.Sim.Internal.Words (Words, newWords, wordOf, setWord, addTo, isSet, setFlag) where

import Control.Monad.Primitive (RealWorld)
import Data.Primitive.PrimArray

-- | A number for each constructor of the type. A flag is 0 or 1.
newtype Words name = Words (MutablePrimArray RealWorld Int)

newWords :: forall name. (Bounded name, Enum name) => IO (Words name)
newWords = do
  memory <- newPrimArray size
  Words memory <$ setPrimArray memory 0 size 0
  where
    size = fromEnum (maxBound :: name) + 1

wordOf :: (Enum name) => Words name -> name -> IO Int
wordOf (Words memory) = readPrimArray memory . fromEnum

setWord :: (Enum name) => Words name -> name -> Int -> IO ()
setWord (Words memory) = writePrimArray memory . fromEnum

addTo :: (Enum name) => Words name -> name -> Int -> IO ()
addTo words' name n = wordOf words' name >>= \before -> setWord words' name (before + n)

isSet :: (Enum name) => Words name -> name -> IO Bool
isSet words' name = (/= 0) <$> wordOf words' name

setFlag :: (Enum name) => Words name -> name -> Bool -> IO ()
setFlag words' name = setWord words' name . fromEnum
