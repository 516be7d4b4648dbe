-- |
-- An example: what @docs/coming-from-forkIO.md@ shows.
module ComingFrom
  ( both,
    Env (..),
    greet,
    session,
    fromOutside,
  )
where

import Control.Concurrent (forkIO)
import Control.Exception (bracket_)
import Control.Monad (forM_, void)
import Control.Monad.Trans.Reader (ReaderT, asks, runReaderT)
import Data.ByteString.Char8 qualified as Char8
import Weft (Thread, liftIO)
import Weft.Channel (Channel, close, newChannel, receive)
import Weft.IO (direct)
import Weft.IO qualified as IO
import Weft.Outside
import Weft.Scope
import Weft.Socket (Socket)

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
  liftIO . bracket_ (logLine "begin") (logLine "end") $ do
    name <- IO.receive client 100
    IO.sendAll client (Char8.pack "Hello, " <> name)

session :: Env -> Thread ()
session = direct . runReaderT greet

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
