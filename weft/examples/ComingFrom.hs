-- |
-- An example: what @docs/coming-from-forkIO.md@ shows.
module ComingFrom
  ( both,
    Env (..),
    greet,
    session,
    greetAll,
    firstJob,
    fromOutside,
  )
where

import Control.Concurrent (forkIO)
import Control.Exception qualified as Ghc
import Control.Monad (forM_, void)
import Control.Monad.Trans.Reader (ReaderT, asks, runReaderT)
import Data.ByteString.Char8 qualified as Char8
import Weft (MonadMask, Thread, bracket_, liftIO, seconds)
import Weft.Channel (Channel, close, newChannel, receive)
import Weft.IO (direct)
import Weft.IO qualified as IO
import Weft.Outside
import Weft.Scope
import Weft.Select
import Weft.Socket (Socket)
import Weft.Socket qualified as Socket
import Weft.Unlift (MonadUnliftThread, liftThread)
import Weft.Unlift qualified as Unlift

both :: Thread a -> Thread b -> Thread (a, b)
both left right = withScope $ \scope -> do
  a <- forkIn scope left
  b <- forkIn scope right
  (,) <$> awaitChild a <*> awaitChild b

data Env = Env
  { envClient :: Socket,
    envLog :: String -> IO ()
  }

-- An application in the usual ReaderT over IO. Only the operations that wait are
-- Weft's.
greet :: ReaderT Env IO ()
greet = do
  client <- asks envClient
  logLine <- asks envLog
  liftIO . Ghc.bracket_ (logLine "begin") (logLine "end") $ do
    name <- IO.receive client 100
    IO.sendAll client (Char8.pack "Hello, " <> name)

session :: Env -> Thread ()
session = direct . runReaderT greet

-- In the monadic style the application is a ReaderT over Thread, or over IO in direct style
-- as above: this one is for both. Weft.Unlift has scopes, time limits and the like for them.
greetAll :: (MonadUnliftThread m, MonadMask m) => ReaderT Env m (Maybe [Int])
greetAll = do
  client <- asks envClient
  logLine <- asks envLog
  bracket_ (liftIO (logLine "begin")) (liftIO (logLine "end")) . Unlift.timeout (seconds 10) . Unlift.withScope $ \scope -> do
    names <- Unlift.forkIn scope (liftThread (Char8.words <$> Socket.receive client 100))
    Unlift.forConcurrentlyN 2 [0 .. 1] $ \i -> do
      name <- liftThread ((!! i) <$> awaitChild names)
      Char8.length name <$ liftIO (logLine (Char8.unpack name))

-- In STM: `(Left <$> readTQueue urgent) \`orElse\` (Right <$> readTQueue normal)`.
firstJob :: Channel a -> Channel b -> Thread (Either (Maybe a) (Maybe b))
firstJob urgent normal = select [Left <$> onReceive urgent, Right <$> onReceive normal]

-- A thread of forkIO sends ten numbers to threads of Weft.
fromOutside :: Thread [Int]
fromOutside = withRunner $ \runner -> do
  numbers <- newChannel 4
  void . liftIO . forkIO $ do
    forM_ [1 .. 10] $ sendFrom runner numbers
    runThread runner (close numbers)
  drain numbers

drain :: Channel a -> Thread [a]
drain channel = receive channel >>= maybe (pure []) (\a -> (a :) <$> drain channel)
