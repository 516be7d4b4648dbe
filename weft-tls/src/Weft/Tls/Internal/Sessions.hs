{-# OPTIONS_HADDOCK not-home #-}

-- | Remembers sessions, bounded in number and time, so that returning clients skip the expensive part
-- of the handshake. Called from any OS thread.
module Weft.Tls.Internal.Sessions (newSessions) where

import Control.Exception (evaluate)
import Data.ByteString.Short (ShortByteString, toShort)
import Data.IORef
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Word (Word64)
import GHC.Clock (getMonotonicTimeNSec)
import Network.TLS

-- | Sessions by their number, and the numbers in order of arrival.
data Store = Store
  { sessions :: !(Map ShortByteString Entry),
    order :: !(IntMap ShortByteString),
    next :: !Int
  }

data Entry = Entry !Int !Word64 SessionData

-- | Remembers at most the given number of sessions, each for the given seconds; drops the oldest first.
newSessions :: Int -> Int -> IO SessionManager
newSessions most lifetimeSeconds
  | most <= 0 = pure noSessionManager
  | otherwise = do
      store <- newIORef (Store Map.empty IntMap.empty 0)
      let look number = do
            now <- getMonotonicTimeNSec
            found <- Map.lookup (toShort number) . sessions <$> readIORef store
            pure $ case found of
              Just (Entry _ until' session) | now < until' -> Just session
              _ -> Nothing
          forget number = atomicModifyIORef' store (\s -> (without (toShort number) s, ()))
      pure
        noSessionManager
          { sessionResume = look,
            sessionResumeOnlyOnce = \number -> look number <* forget number,
            sessionEstablish = \number session -> do
              now <- getMonotonicTimeNSec
              -- An unevaluated session would retain the whole handshake.
              _ <- evaluate (length (show session))
              let until' = now + fromIntegral lifetimeSeconds * 1_000_000_000
              -- No ticket of our own, which tls 2 asks for; tls 1.8 wants ().
              atomicModifyIORef' store (\s -> (limited (with (toShort number) until' session s), mempty)),
            sessionInvalidate = forget
          }
  where
    with number until' session s =
      let s' = without number s
       in s'
            { sessions = Map.insert number (Entry (next s') until' session) (sessions s'),
              order = IntMap.insert (next s') number (order s'),
              next = next s' + 1
            }
    without number s = case Map.lookup number (sessions s) of
      Nothing -> s
      Just (Entry place _ _) -> s {sessions = Map.delete number (sessions s), order = IntMap.delete place (order s)}
    limited s
      | Map.size (sessions s) <= most = s
      | otherwise = case IntMap.minView (order s) of
          Just (number, _) -> without number s
          Nothing -> s
