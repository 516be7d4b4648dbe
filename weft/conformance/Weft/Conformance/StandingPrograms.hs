{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Random readers of one stream, against a model
--
-- Several threads read one stream, in loops whose receive stands and with single receives, while
-- others cancel them, close the socket, or reset the connection. The model is a string of bytes of
-- which none occurs twice: what was received is the beginning of it, each byte once, and each
-- receive has bytes that lie together; all of it, unless the connection was cut.
module Weft.Conformance.StandingPrograms (randomReaders) where

import Control.Monad (forM, forM_, replicateM_, unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.IORef
import Data.List (sort)
import Data.Word (Word8)
import Foreign.C.Error
import Test.Tasty
import Weft
import Weft.Buffer
import Weft.Conformance.Check
import Weft.Conformance.Connecting
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.Mask
import Weft.Socket
import Weft.Time (microseconds)

-- | How a stream ends.
data End
  = -- | No more is sent.
    HalfClosed
  | -- | The peer closes its end at once, so that bytes on their way may be lost.
    Reset
  | -- | A third thread closes the socket that the readers wait for, at any time.
    Closed
  deriving stock (Eq, Show)

-- | A program and its dice, by a number.
randomReaders :: World -> TestTree
randomReaders world = inDirectory world "random readers of a stream keep to the model" $ \dir -> do
  hits <- liftIO (newIORef (0 :: Int))
  let programs = worldRounds world 60
  forM_ [1 .. programs] $ \number -> program world dir hits number
  n <- liftIO (readIORef hits)
  -- Otherwise it would test little.
  holds (show n <> " cancellations arrived in " <> show programs <> " programs") (n >= programs)

program :: World -> ByteString -> IORef Int -> Int -> Thread ()
program world dir hits number = do
  dice <- newDice number
  overTcp <- (> 0) <$> roll dice 3
  (a, b) <- if overTcp then connected else unixPair dir
  end <- ([HalfClosed, Reset, Closed] !!) <$> roll dice 3
  count <- (1 +) <$> roll dice 3
  readers <- forM [1 .. count] $ \i -> do
    own <- newDice (1000 * number + i)
    chunks <- liftIO (newIORef [])
    done <- newGate
    let reads' = readAll own b (\bytes -> liftIO (modifyIORef' chunks (bytes :))) hits (allowed overTcp end)
    t <- forkWith defaultForkOptions {forkWorker = Just (i `mod` worldWorkers world)} (mask_ reads' `finally` openGate done ())
    pure (t, waitGate done, reverse <$> readIORef chunks)
  closer <- if end == Closed then Just <$> beside world (pauses dice 30 >> closeSocket b) else pure Nothing
  writer <- beside world (newDice (-number) >>= \own -> writeAll own a (end == Closed))
  replicateM_ 12 $ do
    (target, _, _) <- (readers !!) <$> roll dice count
    condemned <- liftIO (isCondemned target)
    unless condemned (cancel target)
    pauses dice 4
  writer
  when (end == Reset && overTcp) $ worldLeaveNoPort world a
  if end == HalfClosed then shutdown a ShutdownSend else closeSocket a
  sequence_ closer
  forM_ readers $ \(_, wait, _) -> wait
  got <- liftIO (forM readers $ \(_, _, chunks) -> chunks)
  let received' = sort (concatMap (concatMap ByteString.unpack) got)
      say what = what <> " in program " <> show number <> ", " <> show end <> ": " <> show (map (map ByteString.unpack) got)
  holds (say "a byte is lost or doubled") (received' == take (length received') stream)
  holds (say "a receive has bytes that do not lie together") (all (all together) got)
  holds (say "a reader goes back") (all (increasing . concatMap ByteString.unpack) got)
  unless (end == Closed || end == Reset && overTcp) $
    holds (say "the end is missing") (length received' == length stream)
  when (end == HalfClosed) (closeSocket a)
  unless (end == Closed) (closeSocket b)
  where
    together bytes = ByteString.unpack bytes == take (ByteString.length bytes) [ByteString.head bytes ..]
    increasing bytes = and (zipWith (<) bytes (drop 1 bytes))

-- | What is sent.
stream :: [Word8]
stream = [0 .. 199]

-- | The errors with which a reader may end.
allowed :: Bool -> End -> [Errno]
allowed overTcp = \case
  HalfClosed -> []
  Reset -> [eCONNRESET | overTcp]
  Closed -> [eCANCELED, eBADF]

-- | Send the stream in pieces. The socket at the other end may be closed.
writeAll :: Dice -> Socket -> Bool -> Thread ()
writeAll dice a mayFail = go (ByteString.pack stream) `catch` \e -> unless mayFail (throwM (e :: IOError))
  where
    go bytes = unless (ByteString.null bytes) $ do
      n <- (1 +) <$> roll dice 12
      sendAll a (ByteString.take n bytes)
      pauses dice 3
      go (ByteString.drop n bytes)

-- | Let others go on, and time pass now and then.
pauses :: Dice -> Int -> Thread ()
pauses dice most = do
  n <- roll dice (most + 1)
  replicateM_ n yield
  long <- roll dice 3
  when (long == 0) $ sleep (microseconds 50)

-- | Read until the end, or an error that is allowed: some bytes in a loop, with a buffer of its own, some with one receive. A cancellation ends
-- a wait, or a pause, and nothing else.
readAll :: Dice -> Socket -> (ByteString -> Thread ()) -> IORef Int -> [Errno] -> Thread ()
readAll dice s note hits errors = go
  where
    go = do
      room <- (1 +) <$> roll dice 9
      loops <- (> 0) <$> roll dice 4
      outcome <- try (try (if loops then inLoop room else once room))
      case outcome of
        Left Cancelled -> liftIO (atomicModifyIORef' hits (\n -> (n + 1, ()))) >> go
        Right (Right ended) -> unless ended go
        Right (Left e) -> failsWith errors (throwM (e :: IOError) :: Thread ())
    once room = do
      bytes <- receive s room
      unless (ByteString.null bytes) (note bytes)
      pure (ByteString.null bytes)
    inLoop room = do
      buffer <- liftIO (newBuffer room)
      receiveEachInto s buffer $ \n ->
        if n == 0
          then pure (Just True)
          else do
            liftIO (copyBuffer buffer 0 n) >>= note
            what <- roll dice 10
            case what of
              0 -> pure (Just False)
              1 -> Nothing <$ yield
              2 -> Nothing <$ uninterruptibleMask_ yield
              3 -> Nothing <$ void (try (throwM (userError "caught")) :: Thread (Either IOError ()))
              4 -> Nothing <$ pauses dice 2
              -- In another place, and perhaps the other threads' bytes come first.
              5 -> (\ended -> if ended then Just True else Nothing) <$> once 2
              _ -> pure Nothing
