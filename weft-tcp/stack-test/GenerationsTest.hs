-- |
-- Description : Stacks that follow each other while they serve
--
-- Transfers in both directions go through several stacks, one after the other, and one whose successor fails goes on.
module GenerationsTest (tests) where

import Control.Concurrent (MVar, newEmptyMVar, putMVar, takeMVar)
import Control.Concurrent qualified as Ghc
import Control.Exception (SomeException, throwIO)
import Control.Exception qualified as Exception
import Control.Monad (forM, forM_, replicateM, unless, void, when)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as Char8
import HandoverTest (readFrames)
import Support
import Test.Tasty hiding (after)
import Test.Tasty.HUnit
import Weft
import Weft.Socket
import Weft.Tcp.Device
import Weft.Tcp.Handover hiding (release)
import Weft.Tcp.Handover qualified as Handover
import Weft.Tcp.Packet (Address (..))
import Weft.Test.Loopback (toEnd)

tests :: TestTree
tests =
  testGroup
    "stacks that follow each other"
    [ testCase "six stacks, one after the other, over a good link" (generations perfectLink perfectLink 6 60000),
      testGroup
        "six stacks, one after the other, over bad links"
        [ testCase ("seed " <> show seed) $ do
            there <- roughLink seed
            back <- roughLink (seed + 1000)
            generations there back 6 5000
          | seed <- [1 .. 6]
        ],
      testCase "a stack whose successor fails goes on" failing
    ]

serverAddress, clientAddress :: Address
serverAddress = Address4 0x0a090002
clientAddress = Address4 0x0a090001

-- | A run over a stack that can be replaced, and its handle.
replaceable :: Device -> Maybe Secret -> IO (Handover, Weft.Settings)
replaceable device inherited = do
  h <- newHandover inherited
  pure (h, ownSettingsWith (movable h) (pure device {deviceClose = pure ()}) serverAddress)

-- | Three clients send and receive this number of bytes for each of the server's stacks, and each of the stacks passes a share of them on
-- before it is replaced, in the middle of both directions.
generations :: Link -> Link -> Int -> Int -> Assertion
generations there back count share = do
  (a, b) <- newPair 1500 there back
  ready <- newEmptyMVar
  results <- newEmptyMVar
  let size = count * share
      -- The first has no state to take over.
      generation :: Int -> Maybe (Secret, Frozen) -> IO () -> IO ()
      generation n inherited taken = do
        (h, settings) <- replaceable b (fst <$> inherited)
        runWith settings . withSocket (listenTcp (Just "10.9.0.2") "80" 16) $ \l -> do
          adopted <- case inherited of
            Nothing -> 3 <$ liftIO (putMVar ready ())
            Just (_, frozen) -> takeOver h frozen
          liftIO taken
          -- All of them first: one whose accept was undone would come again.
          accepted <- replicateM adopted (fst <$> accept l)
          sessions <- mapM (beside . session h n) accepted
          left <- length . filter id <$> sequence sessions
          when (left > 0) $ do
            own' <- secret h
            gone <- flip (handingOver h) (pure ()) $ \frames -> do
              frozen <- maybe (throwM (userError "refused")) pure (readFrames frames)
              there' <- liftIO newEmptyMVar
              liftIO (started (generation (n + 1) (Just (own', frozen)) (putMVar there' ())))
              True <$ blocking (takeMVar (there' :: MVar ()))
            liftIO (gone @?= True)
      started act = void (Ghc.forkOS (Exception.try act >>= putMVar results))
      -- The last echoes until the end. Answers whether the connection is left to another.
      session h n s = do
        over <- echo s (if n == count then maxBound else share)
        if over
          then False <$ closeSocket s
          else do
            released <- Handover.release h s
            True <$ unless released (throwM (userError "not released"))
      echo s left
        | left <= 0 = pure False
        | otherwise = do
            bytes <- receive s (min 3000 left)
            if B.null bytes then pure True else sendAll s bytes >> echo s (left - B.length bytes)
  started (generation 1 Nothing (pure ()))
  (got, outcomes) <- runWith (ownSettings (pure a) clientAddress) $ do
    blocking (takeMVar ready)
    clients <- forM [1 .. 3] $ \k -> beside . withSocket (connectTcp (seconds 30) "10.9.0.2" "80") $ \s -> do
      sending <- beside (sendAll s (content size k) >> shutdown s ShutdownSend)
      toEnd s <* sending
    -- A stack that has sent its last bytes waits for the client's acknowledgement.
    (,) <$> sequence clients <*> replicateM count (blocking (takeMVar results))
  forM_ outcomes (either (\e -> throwIO (e :: SomeException)) pure)
  forM_ (zip [1 .. 3] got) $ \(k, bytes) -> assertBool ("the bytes of client " <> show k) (bytes == content size k)

-- | At each point where the successor can fail the stack goes on, and its connections are accepted again.
failing :: Assertion
failing = do
  (a, b) <- newPair 1500 perfectLink perfectLink
  ready <- newEmptyMVar
  ended' <- newEmptyMVar
  (h, settings) <- replaceable b Nothing
  let started act = void (Ghc.forkOS (Exception.try act >>= putMVar ended'))
  started . runWith settings . withSocket (listenTcp (Just "10.9.0.2") "80" 16) $ \l -> do
    liftIO (putMVar ready ())
    forM_ [\_ -> pure False, \_ -> throwM (userError "dead"), \frames -> False <$ liftIO (void (Exception.evaluate (length frames)))] $ \fails -> do
      (s, _) <- accept l
      bytes <- receive s 1
      sendAll s bytes
      released <- Handover.release h s
      liftIO (released @?= True)
      outcome <- try (handingOver h fails (pure ()))
      liftIO (either (\e -> show (e :: IOError)) show outcome `elem` ["False", "user error (dead)"] @?= True)
    (s, _) <- accept l
    bytes <- toEnd s
    sendAll s bytes
    closeSocket s
  got <- runWith (ownSettings (pure a) clientAddress) $ do
    blocking (takeMVar ready)
    withSocket (connectTcp (seconds 30) "10.9.0.2" "80") $ \s -> do
      sendAll s (Char8.pack "abcdefgh")
      shutdown s ShutdownSend
      toEnd s
  takeMVar ended' >>= either (\e -> throwIO (e :: SomeException)) pure
  got @?= Char8.pack "abcdefgh"
