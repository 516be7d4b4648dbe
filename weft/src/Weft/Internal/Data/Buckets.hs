{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | A map of numbers in many variables, for waits for descriptors, whose numbers are small and dense: a
-- bucket has one or two entries where one map has a path to copy, and processors change different variables.
module Weft.Internal.Data.Buckets (Buckets, newBuckets, bucketOf) where

import Control.Monad.Primitive (RealWorld)
import Data.Bits ((.&.))
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Primitive.MutVar
import Data.Primitive.SmallArray
import Foreign.C.Types (CInt)

-- | Entries by number. The numbers with the same last ten digits are together.
newtype Buckets a = Buckets (SmallArray (MutVar RealWorld (IntMap a)))

newBuckets :: IO (Buckets a)
newBuckets = Buckets . smallArrayFromListN many <$> mapM (\_ -> newMutVar IntMap.empty) [1 .. many]

-- | A power of two.
many :: Int
many = 1024

-- | Where a number is, if it is there. The variable always holds an evaluated map.
bucketOf :: Buckets a -> CInt -> MutVar RealWorld (IntMap a)
bucketOf (Buckets buckets) number = indexSmallArray buckets (fromIntegral number .&. (many - 1))
