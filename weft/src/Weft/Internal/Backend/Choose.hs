{-# OPTIONS_HADDOCK not-home #-}

-- | Which event source the workers use. The operator is told once when it had to be another one.
module Weft.Internal.Backend.Choose
  ( BackendChoice (..),
    parseBackend,
    Chosen,
    chooseBackend,
    startBackend,
  )
where

import Control.Exception (throwIO)
import Control.Monad (unless)
import Data.IORef
import Data.List (intercalate)
import System.Environment (lookupEnv)
import Weft.Internal.Backend (Backend, Post)
import Weft.Internal.Backend.Pollers (epoll, poll)
import Weft.Internal.Backend.Readiness (newReadiness)
import Weft.Internal.Backend.Uring (defaultUringSettings, newUring)
import Weft.Internal.Os.Pool (Pool)

-- | An event source, by name.
data BackendChoice
  = -- | What @WEFT_BACKEND@ names, and without it the one that measures best (see @docs/decisions.md@).
    Auto
  | Epoll
  | Uring
  | Poll
  deriving stock (Eq, Show, Enum, Bounded)

backendNames :: [(String, BackendChoice)]
backendNames = [("auto", Auto), ("epoll", Epoll), ("io_uring", Uring), ("poll", Poll)]

-- | Read a name, or say which there are.
--
-- >>> parseBackend "epoll"
-- Right Epoll
-- >>> parseBackend "kqueue"
-- Left "unknown backend \"kqueue\" (known: auto, epoll, io_uring, poll)"
parseBackend :: String -> Either String BackendChoice
parseBackend name = case lookup name backendNames of
  Just choice -> Right choice
  Nothing -> Left ("unknown backend " <> show name <> " (known: " <> intercalate ", " (map fst backendNames) <> ")")

-- | The choice of @WEFT_BACKEND@; 'Auto' where it is unset or empty. An unknown name is an 'IOError'.
backendFromEnvironment :: IO BackendChoice
backendFromEnvironment =
  lookupEnv "WEFT_BACKEND" >>= \case
    Nothing -> pure Auto
    Just "" -> pure Auto
    Just name -> either (throwIO . userError . ("WEFT_BACKEND: " <>)) pure (parseBackend name)

-- | A choice, and whether the operator was told that it was not available.
data Chosen = Chosen !BackendChoice !(IORef Bool)

chooseBackend :: BackendChoice -> IO Chosen
chooseBackend choice = do
  wanted <- if choice == Auto then backendFromEnvironment else pure choice
  Chosen wanted <$> newIORef False

-- | Start the backend of one worker. Where io_uring cannot be set up, epoll takes its place.
startBackend :: Chosen -> Pool -> Post -> (String -> IO ()) -> IO (Backend w)
startBackend (Chosen choice told) pool post report = case choice of
  Auto -> newReadiness epoll pool post
  Epoll -> newReadiness epoll pool post
  Poll -> newReadiness poll pool post
  Uring ->
    newUring defaultUringSettings post >>= \case
      Right backend -> pure backend
      Left reason -> do
        already <- atomicModifyIORef' told (True,)
        unless already $ report ("io_uring cannot be used here (" <> reason <> "); using epoll")
        newReadiness epoll pool post
