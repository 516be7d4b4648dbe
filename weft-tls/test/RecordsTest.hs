-- | Records between two ends in one program: what is held, and what an interruption leaves.
module RecordsTest (tests) where

import Control.Exception (IOException)
import Control.Monad (replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Foreign.Storable (pokeByteOff)
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.Concurrently (concurrently)
import Weft.Event (newEvent, set, wait)
import Weft.Http.Server (Transport (..))
import Weft.Timeout (timeout)
import Weft.Tls.Internal.Records
import World

tests :: World -> TestTree
tests _ =
  testGroup
    "records"
    [ testCase "a record is given when it is whole, however it comes" $ run $ do
        let bytes = record (B.replicate 300 1) <> record "" <> record (B.replicate 16_384 2) <> record (B.replicate 9000 3)
        mapM_ (\size -> taken size bytes >>= \rs -> liftIO (map shape rs @?= map shape (recordsOf bytes))) [1, 2, 5, 7, 304, 305, 306, 1000, 1024, 4096, 16_389, 50_000],
      testCase "of a record that is longer than allowed only the header is waited for" $ run $ do
        source <- liftIO (newIORef [B.pack [23, 3, 3, 0xFF, 0xFF]])
        rs <- newRecords (scripted source)
        _ <- fill rs
        liftIO (isComplete rs >>= (@?= True)),
      testCase "what has come when a wait is interrupted is there afterwards" $ run $ do
        me <- myThreadId
        source <- liftIO (newIORef [record "one"])
        let interrupting = (scripted source) {transportReceive = \b o n -> transportReceive (scripted source) b o n <* cancel me}
        rs <- newRecords interrupting
        outcome <- try (fill rs >> sleep (seconds 10))
        liftIO (either (\Cancelled -> pure ()) (\() -> assertFailure "not cancelled") outcome)
        liftIO (isComplete rs >>= (@?= True))
        liftIO (takeComplete rs 5 >> takeComplete rs 3 >>= (@?= "one")),
      testCase "what is put is sent in order, in as many sends as it takes" $ run $ do
        sent <- liftIO (newIORef [])
        source <- liftIO (newIORef [])
        let three ps = do
              let some = B.take 3 (B.concat ps)
              liftIO (modifyIORef' sent (some :))
              pure (B.length some)
        rs <- newRecords (scripted source) {transportSend = three}
        liftIO (mapM_ (put rs) ["abcd", "e", "fghijkl"])
        quick <- flush rs
        liftIO (quick @?= False)
        again <- flush rs
        liftIO (again @?= True)
        liftIO (readIORef sent >>= (@?= "abcdefghijkl") . B.concat . reverse),
      testCase "a receiver leaves its answers to the thread that sends, and fails where they are many" $ run $ do
        sent <- liftIO (newIORef [])
        source <- liftIO (newIORef [])
        begun <- newEvent
        taken' <- newEvent
        let once ps = do
              set begun >> wait taken'
              sum (map B.length ps) <$ liftIO (modifyIORef' sent (B.concat ps :))
        rs <- newRecords (scripted source) {transportSend = once}
        liftIO (put rs "data")
        ((), ()) <- concurrently (void (flush rs)) $ do
          wait begun
          liftIO (put rs "answer")
          timeout (seconds 10) (flushAnswers rs) >>= liftIO . (@?= Just ())
          liftIO (readIORef sent >>= (@?= []))
          liftIO (replicateM_ 100 (put rs "more"))
          timeout (seconds 10) (flushAnswers rs) >>= liftIO . (@?= Just ())
          liftIO (replicateM_ 200 (put rs "more"))
          refused <- try (flushAnswers rs)
          liftIO (either (\(_ :: IOException) -> True) (const False) refused @?= True)
          set taken'
        liftIO (readIORef sent >>= (@?= ["data", "answer" <> B.concat (replicate 300 "more")]) . reverse),
      testCase "a receiver waits a second to send its answers, which go later" $ run $ do
        blocked <- liftIO (newIORef True)
        source <- liftIO (newIORef [])
        let once ps = do
              waits <- liftIO (readIORef blocked)
              if waits then newEvent >>= wait >> pure 0 else pure (sum (map B.length ps))
        rs <- newRecords (scripted source) {transportSend = once}
        liftIO (put rs "answer")
        timeout (seconds 60) (flushAnswers rs) >>= liftIO . (@?= Just ())
        liftIO (hasOutput rs >>= (@?= True))
        liftIO (writeIORef blocked False)
        _ <- flush rs
        liftIO (hasOutput rs >>= (@?= False))
    ]

-- | Enough to tell the records here apart.
shape :: ByteString -> (Int, ByteString)
shape bytes = (B.length bytes, B.take 1 bytes)

-- | A record of application data.
record :: ByteString -> ByteString
record content = B.pack [23, 3, 3, fromIntegral (B.length content `div` 256), fromIntegral (B.length content `mod` 256)] <> content

recordsOf :: ByteString -> [ByteString]
recordsOf bytes
  | B.null bytes = []
  | otherwise =
      let n = 256 * fromIntegral (B.index bytes 3) + fromIntegral (B.index bytes 4)
       in B.take n (B.drop 5 bytes) : recordsOf (B.drop (5 + n) bytes)

-- | Gives these pieces, and then the end.
scripted :: IORef [ByteString] -> Transport
scripted source =
  Transport
    { transportReceive = \buffer offset count -> liftIO $ do
        readIORef source >>= \case
          [] -> pure 0
          piece : rest -> do
            let now = B.take count piece
                later = B.drop count piece
            writeIORef source ([later | not (B.null later)] <> rest)
            withBuffer buffer (\p -> sequence_ [pokeByteOff p (offset + i) byte | (i, byte) <- zip [0 ..] (B.unpack now)])
            pure (B.length now),
      transportSend = pure . sum . map B.length,
      transportSendFile = \_ _ _ -> pure 0,
      transportEnd = pure (),
      transportPending = pure False
    }

-- | All records that are taken of these bytes, which come in pieces of such a size.
taken :: Int -> ByteString -> Thread [ByteString]
taken size bytes = do
  source <- liftIO (newIORef (chunks bytes))
  rs <- newRecords (scripted source)
  let go = do
        whole <- liftIO (isComplete rs)
        if whole
          then do
            content <- liftIO $ do
              header <- takeComplete rs 5
              let n = 256 * fromIntegral (B.index header 3) + fromIntegral (B.index header 4)
              -- Now: the memory is used again.
              rest <- takeComplete rs n
              pure $! B.copy rest
            (content :) <$> go
          else do
            missing <- liftIO (try' (takeComplete rs 5))
            liftIO (missing @?= True)
            more <- fill rs
            if more then go else pure []
  go
  where
    chunks b | B.null b = []
    chunks b = let (c, r) = B.splitAt size b in c : chunks r
    try' action = (False <$ action) `catch` \NeedMore -> pure True
