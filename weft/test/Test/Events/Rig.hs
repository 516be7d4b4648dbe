{-# LANGUAGE BlockArguments #-}

-- |
-- Description : A source as the tests of the event manager need it
--
-- A rig is a source, and a link: a descriptor with a far side that a test can make ready
-- for this and that. With a script in place of a kernel, the far side is the script.
module Test.Events.Rig
  ( Rig (..),
    Link (..),
    rigs,
    realRigs,
    withRig,
    withLink,
    settled,
    until',
    collecting,
  )
where

import Control.Exception (bracket, finally, try)
import Control.Monad (unless, void, when)
import Data.ByteString qualified as ByteString
import Data.IORef
import GHC.Clock (getMonotonicTimeNSec)
import Network.Socket hiding (close)
import Network.Socket qualified as Socket
import Network.Socket.ByteString (recv, send)
import System.Posix.Types (Fd)
import Test.Tasty.HUnit
import Weft.EventManager
import Weft.EventManager.Source
import Weft.Internal.Data.Time

-- | A source under test.
data Rig = Rig
  { rigName :: String,
    -- | A new source, a way to make links for it, and its clock in nanoseconds.
    rigMake :: IO (IO Poller, IO Link, IO Int),
    -- | Does it tell 'peerClosed' and 'failed' from 'readable' and 'writable'?
    rigTellsEndings :: Bool,
    -- | Can 'toSeePeerClose' be waited for alone?
    rigAwaitsEndings :: Bool,
    -- | Do the descriptors exist?
    rigIsReal :: Bool
  }

-- | A descriptor whose reading and writing begin unready and ready.
data Link = Link
  { linkNear :: Fd,
    -- | Make it readable, and no more.
    fill :: IO (),
    empty :: IO (),
    -- | Make it not writable, and writable again.
    choke :: IO (),
    unchoke :: IO (),
    -- | The far side goes.
    hangUp :: IO (),
    -- | The action for 'closeWith'.
    closeNear :: Fd -> IO (),
    -- | A link whose near side has the number that was just closed.
    again :: IO Link,
    release :: IO ()
  }

-- | Every source.
rigs :: [Rig]
rigs = realRigs <> [Rig "script" scriptedRig True True False]

-- | The sources with a kernel that this build has.
realRigs :: [Rig]
realRigs =
  [ Rig "epoll" (real epoll) True True True,
    Rig "poll" (real poll) True True True,
    Rig "select" (real select) False False True,
    Rig "io_uring" (real ioUring) True True True
  ]
    <> [Rig "kqueue" (real kqueue) True False True | hasKqueue]
  where
    real source = pure (source, socketLink, fromIntegral <$> getMonotonicTimeNSec)

socketLink :: IO Link
socketLink = do
  (near, far) <- socketPair AF_UNIX Stream defaultProtocol
  number <- fromIntegral <$> unsafeFdSocket near
  let attempt :: IO a -> IO (Either IOError a)
      attempt = try
      -- A send that would block waits inside of network: no more than is free at once.
      choking = do
        setSocketOption near SendBuffer 4096
        let go = isWritable number >>= \room -> when room (send near (ByteString.replicate 1024 0) >> go)
        go
      draining = do
        more <- isReadable number
        when more $ recv near 4096 >>= \b -> unless (ByteString.null b) draining
      unchoking = do
        farNumber <- fromIntegral <$> unsafeFdSocket far
        more <- isReadable farNumber
        when more $ recv far 65536 >> unchoking
  pure
    Link
      { linkNear = number,
        fill = void (send far (ByteString.pack [1])),
        empty = draining,
        choke = choking,
        unchoke = unchoking,
        hangUp = Socket.close far,
        closeNear = \_ -> Socket.close near,
        again = sameNumber number,
        release = void (attempt (Socket.close near)) `finally` void (attempt (Socket.close far))
      }
  where
    sameNumber number = do
      link <- socketLink
      linkNear link @?= number
      pure link

isReadable, isWritable :: Fd -> IO Bool
isReadable = asks toRead
isWritable = asks toWrite

-- | By a manager of its own.
asks :: Interest -> Fd -> IO Bool
asks interest fd = withEventManager poll \m -> do
  answer <- newIORef False
  _ <- register m fd interest OneShot \_ _ -> writeIORef answer True
  _ <- step m (Just (nanoseconds 0))
  readIORef answer

scriptedRig :: IO (IO Poller, IO Link, IO Int)
scriptedRig = do
  (script, poller) <- scripted
  next <- newIORef 1000
  let link number = do
        state <- newIORef writable
        let set f = modifyIORef state f >> readIORef state >>= setReady script number
            without e s = mconcat [x | x <- [readable, writable, peerClosed, failed], x /= e, s `has` x]
        set id
        pure
          Link
            { linkNear = number,
              fill = set (<> readable),
              empty = set (without readable),
              choke = set (without writable),
              unchoke = set (<> writable),
              hangUp = set (<> (readable <> writable <> peerClosed)),
              closeNear = \_ -> set (const mempty),
              again = link number,
              release = pure ()
            }
      new = atomicModifyIORef' next (\n -> (n + 1, n)) >>= link
  pure (pure poller, new, fromIntegral . durationNanoseconds <$> scriptNow script)

-- | A manager on the rig's source, its links, and its clock.
withRig :: Rig -> (EventManager -> IO Link -> IO Int -> IO a) -> IO a
withRig rig body = do
  (source, link, clock) <- rigMake rig
  withEventManager source \m -> body m link clock

-- | A link for the time of an action.
withLink :: IO Link -> (Link -> IO a) -> IO a
withLink new = bracket new release

-- | All that has happened already is reported: steps without waiting. A second one for
-- what the first one told the source.
settled :: EventManager -> IO Int
settled m = (+) <$> step m (Just (nanoseconds 0)) <*> step m (Just (nanoseconds 0))

-- | Step until a condition holds; it must, within ten seconds.
until' :: EventManager -> String -> IO Bool -> IO ()
until' m what condition = go (1000 :: Int)
  where
    go n = do
      done <- condition
      unless
        done
        if n == 0
          then assertFailure ("never: " <> what)
          else step m (Just (milliseconds 10)) >> go (n - 1)

-- | A list that grows at its end, and how to read it.
collecting :: IO (a -> IO (), IO [a])
collecting = do
  ref <- newIORef []
  pure (\a -> atomicModifyIORef' ref (\as -> (a : as, ())), reverse <$> readIORef ref)
