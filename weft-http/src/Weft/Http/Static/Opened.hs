-- |
-- Description : Files that are kept open
-- Stability   : not home
--
-- A file that several responses send at a time, and that the cache keeps beside them. It
-- is closed by whoever lets go of it last: the cache may throw it out while it is sent.
module Weft.Http.Static.Opened
  ( Opened,
    openedFile,
    newOpened,
    holdOpened,
    releaseOpened,
    releasedLast,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.PrimVar
import Weft
import Weft.File
import Weft.Mask (mask_)

-- | An open file, and by how many it is held.
data Opened = Opened
  { -- | For those who hold it.
    openedFile :: !File,
    -- | Once 0 it stays 0: the file is being closed.
    openedHolders :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

-- | An open file, held once.
newOpened :: File -> IO Opened
newOpened file = Opened file <$> newPrimVar 1

-- | Hold it once more; false if it was closed before.
holdOpened :: Opened -> IO Bool
holdOpened opened = readPrimVar (openedHolders opened) >>= go
  where
    go n
      | n <= 0 = pure False
      | otherwise = do
          found <- casInt (openedHolders opened) n (n + 1)
          if found == n then pure True else go found

-- | Let go of it. The last one closes the file, also when it has been cancelled.
releaseOpened :: Opened -> Thread ()
releaseOpened opened = mask_ $ do
  lastOne <- liftIO (releasedLast opened)
  when lastOne (closeFile (openedFile opened))

-- | Let go of it in 'IO'. True: whoever has called this is to close the file.
releasedLast :: Opened -> IO Bool
releasedLast opened = (== 1) <$> fetchSubInt (openedHolders opened) 1
