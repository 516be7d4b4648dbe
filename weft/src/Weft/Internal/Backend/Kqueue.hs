{-# OPTIONS_HADDOCK not-home #-}

-- | Kqueue as a source of readiness. That of BSD and macOS, or libkqueue, level-triggered, for the
-- event manager. A registration goes before its descriptor is closed: libkqueue would keep it, and
-- take it for one of the number's next owner.
module Weft.Internal.Backend.Kqueue (kqueue, hasKqueue) where

import Control.Exception (throwIO)
import Control.Monad (unless, void)
import Data.Int (Int64)
import Data.Word (Word64)
import Foreign.C.Error (eNOSYS, errnoToIOError)
import Foreign.C.Types (CInt (..))
import Foreign.Ptr (Ptr)
import System.IO.Error (ioeSetErrorString)
import Weft.Internal.Backend.Readiness.Poller
import Weft.Internal.Os.Sys (Result)
import Weft.Internal.Os.Sys qualified as Sys

-- | @kqueue@: a wait costs time for what is ready. It refuses 'toSeePeerClose' alone with @EOPNOTSUPP@;
-- in what it reports 'peerClosed' is told. It is there where the system has it, and elsewhere in a
-- build with the cabal flag @kqueue@, which needs libkqueue. In other builds ('hasKqueue'), and when
-- the kernel refuses an instance, it throws an 'IOError'.
kqueue :: IO Poller
kqueue = do
  unless hasKqueue . throwIO $
    ioeSetErrorString (errnoToIOError "kqueue" eNOSYS Nothing Nothing) "this build of weft has no kqueue (cabal flag kqueue)"
  instanceNumber <- fromIntegral <$> Sys.throwFailure "kqueue" c_create
  pure
    Poller
      { pollerName = "kqueue",
        pollerTrigger = Level,
        -- An event for each direction, where the manager asks for one for both.
        pollerHasOnce = False,
        -- Has a close remove the descriptor first.
        pollerIsShared = True,
        pollerClock = Sys.monotonicNow,
        pollerWatch = \number (Key key) _ (Interest bits) -> c_watch instanceNumber number key bits,
        pollerRemove = c_remove instanceNumber,
        pollerLook = \events capacity -> c_look instanceNumber events capacity 0,
        pollerWait = c_wait instanceNumber,
        pollerFree = void (Sys.close instanceNumber)
      }

-- | Is 'kqueue' compiled in?
hasKqueue :: Bool
hasKqueue = c_isBuilt /= 0

foreign import ccall unsafe "weft_kqueue_is_built" c_isBuilt :: Int

foreign import ccall unsafe "weft_kqueue_create" c_create :: IO Result

foreign import ccall unsafe "weft_kqueue_watch" c_watch :: CInt -> CInt -> Word64 -> Int -> IO Result

foreign import ccall unsafe "weft_kqueue_remove" c_remove :: CInt -> CInt -> IO ()

foreign import ccall safe "weft_kqueue_wait" c_wait :: CInt -> Ptr Word64 -> Int -> Int64 -> IO Result

foreign import ccall unsafe "weft_kqueue_wait" c_look :: CInt -> Ptr Word64 -> Int -> Int64 -> IO Result
