{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Round trips over sockets of the package network
--
-- Pairs of threads that send each other a byte: GHC's threads, the same code in direct threads that
-- are relinked ("Weft.GhcIO"), and Weft's threads on Weft's sockets.
module Weft.Bench.GhcIO (Trips (..), tripsName, tripsWork) where

import Control.Monad (replicateM, void)
import Data.Text (Text)
import Network.Socket (Family (AF_UNIX), SocketType (Stream), defaultProtocol, socketPair, socketToFd)
import Network.Socket.ByteString qualified as Network
import Weft (BackendChoice (..), Thread, liftIO)
import Weft.Bench.Contest
import Weft.Bench.Contest.Kind (Bodies (..), runKind)
import Weft.Bench.Measure (times)
import Weft.GhcIO qualified as GhcIO
import Weft.IO qualified as IO
import Weft.Socket qualified as Weft

-- | By which threads, and over whose sockets.
data Trips = ByForkIO | Relinked | OfWeft
  deriving stock (Eq, Show, Enum, Bounded)

-- | Its name on the command line and in reports.
tripsName :: Trips -> Text
tripsName = \case
  ByForkIO -> "forkIO"
  Relinked -> "relinked"
  OfWeft -> "weft"

-- | @pairs@ of threads make @trips@ in all, on @processors@.
tripsWork :: Trips -> Point -> Either String (IO Work)
tripsWork kind point = do
  processors <- number point "processors"
  pairs <- number point "pairs"
  trips <- number point "trips"
  let each = max 1 (trips `div` pairs)
      run = runKind processors (each * pairs)
      plain = concat <$> replicateM pairs pair
      pair = do
        (a, b) <- socketPair AF_UNIX Stream defaultProtocol
        pure
          [ times each (Network.sendAll a "x" >> void (Network.recv a 1)),
            times each (Network.recv b 1 >>= Network.sendAll b)
          ]
  pure $ case kind of
    ByForkIO -> run (InGhc False plain)
    Relinked -> GhcIO.install >> run (InWeft Epoll False (map IO.direct <$> liftIO plain))
    OfWeft -> run (InWeft Epoll False (concat <$> replicateM pairs (ofWeft each)))

ofWeft :: Int -> Thread [Thread ()]
ofWeft each = do
  (a, b) <- liftIO (socketPair AF_UNIX Stream defaultProtocol)
  mine <- liftIO (socketToFd a) >>= Weft.adoptSocket
  theirs <- liftIO (socketToFd b) >>= Weft.adoptSocket
  pure
    [ times each (Weft.sendAll mine "x" >> void (Weft.receive mine 1)),
      times each (Weft.receive theirs 1 >>= Weft.sendAll theirs)
    ]
