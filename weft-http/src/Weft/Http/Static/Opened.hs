{-# OPTIONS_HADDOCK not-home #-}

-- | A file that the cache and several responses share. The last holder closes it.
module Weft.Http.Static.Opened
  ( Opened,
    openedFile,
    newOpened,
    holdOpened,
    releaseOpened,
    releasedLast,
    makingRoom,
  )
where

import Control.Monad (when)
import Control.Monad.Primitive (RealWorld)
import Data.Primitive.PrimVar
import Foreign.C.Error
import GHC.IO.Exception (ioe_errno)
import Weft
import Weft.File
import Weft.Http.Static.Cache
import Weft.Mask (mask_)

-- | An open file and the number of its holders.
data Opened = Opened
  { -- | For holders only.
    openedFile :: !File,
    -- | Once 0 it stays 0: the file is being closed.
    openedHolders :: {-# UNPACK #-} !(PrimVar RealWorld Int)
  }

newOpened :: File -> IO Opened
newOpened file = Opened file <$> newPrimVar 1

-- | Hold the file once more; false if it was closed before.
holdOpened :: Opened -> IO Bool
holdOpened opened = readPrimVar (openedHolders opened) >>= go
  where
    go n
      | n <= 0 = pure False
      | otherwise = do
          found <- casInt (openedHolders opened) n (n + 1)
          if found == n then pure True else go found

-- | Release a hold. The last one closes the file, even when cancelled.
releaseOpened :: Opened -> Thread ()
releaseOpened opened = mask_ $ do
  lastOne <- liftIO (releasedLast opened)
  when lastOne (closeFile (openedFile opened))

-- | Open a file. Short of descriptors, evict half of a cache's files, which the function closes, and
-- try again.
makingRoom :: Cache a -> ([a] -> Thread ()) -> Thread File -> Thread File
makingRoom cache close opening =
  opening `catch` \e ->
    if ioe_errno e `notElem` [Just code | Errno code <- [eMFILE, eNFILE]]
      then throwM e
      else
        liftIO (reduceFiles cache (`div` 2)) >>= \case
          [] -> throwM e
          some -> close some >> makingRoom cache close opening

-- | Release a hold in 'IO'. True: the caller must close the file.
releasedLast :: Opened -> IO Bool
releasedLast opened = (== 1) <$> fetchSubInt (openedHolders opened) 1
