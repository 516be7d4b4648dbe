{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The state of simulated disks after a crash
--
-- For many seeds: what was synced is there, what was not is there, lost or torn, and each
-- of these occurs. The protocols that databases rely on hold, and those that they must not
-- rely on break.
module Test.DiskCrash (tests) where

import Control.Monad (forM, forM_, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Data.List (isInfixOf, nub, sort)
import Data.Maybe (catMaybes)
import Foreign.C.Error
import Test.InWorld
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.File
import Weft.Scope
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk.Device (Disk (..), crashDisk, setDisk)
import Weft.Sim.Internal.Kernel (Sim (..))
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Crashes of disks"
    [ testCase "a synced byte is there; an unsynced page is old, new, or torn at a sector" pages,
      testCase "a page that was written twice may come back as it was in between" inBetween,
      testCase "a growing file: its size, its bytes, or one without the other" growing,
      testCase "what it has grown by is cut off anywhere, with zeroes or stale bytes beside it" ragged,
      testCase "an unsynced cut has happened or not" cutting,
      testCase "of names a prefix of the changes survives" journal,
      testCase "a sync of a directory keeps its names, and what came before" directorySync,
      testCase "a sync of a file keeps its creation, but not a later rename" creation,
      testCase "a sync covers what had been done when it was asked for" whenAsked,
      testCase "a failed sync loses pages, and the next one does not bring them back" failedSync,
      testCase "write, sync, rename, sync is atomic at a thousand crash points" (protocol True),
      testCase "without the first sync it is not" (protocol False),
      testCase "a removed file may come back, whole; its room is counted again" comesBack,
      testCase "at the crash nothing is open, and what is under way fails" underWay,
      testCase "many unsynced writes are written back by themselves, oldest first" writtenBack
    ]

-- | The outcomes over many seeds are exactly these.
seenExactly :: (Ord a, Show a) => [a] -> [a] -> Assertion
seenExactly wanted outcomes = sort (nub outcomes) @?= sort wanted

overSeeds :: Int -> Conditions -> Thread a -> IO [a]
overSeeds n conditions body = forM (manySeeds n) (\seed -> inWorld conditions seed body)

page :: Char -> ByteString
page = Char8.replicate 4096

-- | Torn: which sectors are new.
data Page = Old | New | Torn [Bool]
  deriving stock (Eq, Ord, Show)

-- | The state of a page after the crash; it must be one of the three.
classify :: (HasCallStack) => Char -> Char -> ByteString -> IO Page
classify old new bytes = case nub (Char8.unpack bytes) of
  [c] | c == old -> pure Old
  [c] | c == new -> pure New
  [_, _]
    | sectors <- [Char8.take 512 (Char8.drop (512 * i) bytes) | i <- [0 .. 7]],
      all (`elem` [Char8.replicate 512 old, Char8.replicate 512 new]) sectors ->
        pure (Torn (map ((== new) . Char8.head) sectors))
  _ -> assertFailure ("a page that nobody wrote: " <> show (Char8.group bytes))

pages :: Assertion
pages = do
  outcomes <- forM ((,) <$> [calm, rough] <*> manySeeds 300) $ \(conditions, seed) -> do
    told <- inWorld' conditions {shortWrites = 0} seed $ do
      withFile "/tmp/kept" ReadWrite (\f -> writeAt f 0 (page 'k' <> "end") >> sync f)
      withFile "/tmp/f" ReadWrite $ \f -> do
        writeAt f 0 (page 'o' <> page 'o' <> page 'o')
        sync f
        writeAt f 4096 (page 'n')
        writeAt f 8192 (page 'n')
        got <- readAt f 4096 4096
        liftIO (got @?= page 'n')
      crashHome
      readWhole 10_000 "/tmp/kept" ===> page 'k' <> "end"
      withFile "/tmp/f" ReadOnly (\f -> mapM (\i -> readAt f (4096 * i) 4096) [0, 1, 2])
    case toldResult told of
      [a, b, c] -> do
        a @?= page 'o'
        outcomes <- mapM (classify 'o' 'n') [b, c]
        let lost = length (filter (== Old) outcomes)
            torn = length [() | Torn _ <- outcomes]
        -- The note says how many writes were lost and torn.
        toldNotes told @?= ["disk of home: crash: /tmp/f: of 2 unsynced page writes " <> show lost <> " lost, " <> show torn <> " torn"]
        pure outcomes
      _ -> assertFailure "three pages"
  -- Each outcome, with each tear in two, on either side, and tears anywhere; and each by itself.
  let tears = nub [sectors | Torn sectors <- concat outcomes]
      inTwo = [replicate n first <> replicate (8 - n) (not first) | n <- [1 .. 7], first <- [False, True]]
  assertBool "old and new" (all (`elem` concat outcomes) [Old, New])
  assertBool (show tears) (all (`elem` tears) inTwo && length tears > length inTwo + 10)
  assertBool "one without the other" ([Old, New] `elem` outcomes && [New, Old] `elem` outcomes)

inBetween :: Assertion
inBetween = do
  outcomes <- overSeeds 300 calm $ do
    withFile "/tmp/f" ReadWrite $ \f -> do
      writeAt f 0 (page 'a')
      sync f
      writeAt f 0 (page 'b')
      writeAt f 0 (page 'c')
    crashHome
    nub . Char8.unpack <$> readWhole 10_000 "/tmp/f"
  assertBool (show (nub outcomes)) (all (`elem` outcomes) ["a", "b", "c"])

growing :: Assertion
growing = do
  outcomes <- overSeeds 300 calm $ do
    withFile "/tmp/f" ReadWrite (\f -> writeAt f 0 (page 'a') >> sync f >> writeAt f 4096 (page 'b'))
    crashHome
    bytes <- readWhole 10_000 "/tmp/f"
    liftIO (ByteString.take 4096 bytes @?= page 'a')
    pure (nub (Char8.unpack (ByteString.drop 4096 bytes)))
  -- Torn, it has zeroes, or stale bytes: those of the page before.
  seenExactly ["", "\0", "b", "b\0", "\0b", "ba", "ab"] outcomes

-- | Within one sector, too; and what is certain is never touched.
ragged :: Assertion
ragged = do
  outcomes <- overSeeds 600 calm $ do
    withFile "/tmp/f" ReadWrite (\f -> writeAt f 0 "0123456789" >> sync f >> writeAt f 10 "abcdefghij")
    crashHome
    bytes <- readWhole 10_000 "/tmp/f"
    liftIO (ByteString.take 10 bytes @?= "0123456789")
    pure (ByteString.drop 10 bytes)
  let pieces = [bytes | bytes <- outcomes, bytes `notElem` ["", "abcdefghij", Char8.replicate 10 '\0']]
      has part = or [part bytes | bytes <- pieces]
  assertBool (show (nub pieces)) $
    all (\bytes -> ByteString.length bytes == 10) pieces
      && has (\b -> "abc" `ByteString.isPrefixOf` b && Char8.last b == '\0')
      && has (\b -> "hij" `ByteString.isSuffixOf` b && Char8.head b == '\0')
      && has (\b -> "abc" `ByteString.isPrefixOf` b && Char8.last b `elem` ['0' .. '9'])

cutting :: Assertion
cutting = do
  outcomes <- overSeeds 100 calm $ do
    withFile "/tmp/f" ReadWrite (\f -> writeAt f 0 "hello world" >> sync f >> setFileSize f 5 >> setFileSize f 7)
    crashHome
    readWhole 100 "/tmp/f"
  seenExactly ["hello world", "hello", "hello\0\0"] outcomes

-- | The names in a directory.
names :: ByteString -> Thread [ByteString]
names path = withFile path Directory listDirectory

journal :: Assertion
journal = do
  outcomes <- overSeeds 200 rough $ do
    withFile "/tmp/a" WriteOnly (\_ -> pure ())
    renamePath "/tmp/a" "/tmp/b"
    makeDirectory "/tmp/d"
    renamePath "/tmp/b" "/tmp/d/c"
    removePath "/tmp/d/c"
    crashHome
    top <- names "/tmp"
    inside <- if "d" `elem` top then names "/tmp/d" else pure []
    pure (top, inside)
  seenExactly [([], []), (["a"], []), (["b"], []), (["b", "d"], []), (["d"], ["c"]), (["d"], [])] outcomes

directorySync :: Assertion
directorySync = do
  outcomes <- overSeeds 100 calm $ do
    makeDirectory "/tmp/d"
    withFile "/tmp/d/a" WriteOnly (\_ -> pure ())
    withFile "/tmp/b" WriteOnly (\_ -> pure ())
    withFile "/tmp/d" Directory sync
    withFile "/tmp/d/c" WriteOnly (\_ -> pure ())
    crashHome
    (,) <$> names "/tmp" <*> names "/tmp/d"
  seenExactly [(["b", "d"], ["a", "c"]), (["b", "d"], ["a"]), (["d"], ["a"])] outcomes

creation :: Assertion
creation = do
  outcomes <- overSeeds 100 calm $ do
    makeDirectory "/tmp/d"
    withFile "/tmp/d/a" WriteOnly (\f -> writeAt f 0 "x" >> sync f)
    renamePath "/tmp/d/a" "/tmp/d/b"
    withFile "/tmp/d/b" WriteOnly sync
    crashHome
    there <- names "/tmp/d"
    forM_ there (\n -> readWhole 10 ("/tmp/d/" <> n) ===> "x")
    pure there
  seenExactly [["a"], ["b"]] outcomes

whenAsked :: Assertion
whenAsked = do
  outcomes <- overSeeds 100 calm $ do
    withFile "/tmp/f" WriteOnly $ \f -> withScope $ \scope -> do
      writeAt f 0 "old"
      sync f
      syncing <- forkIn scope (sync f)
      -- The sync takes a millisecond, the write much less.
      sleep (microseconds 100)
      writeAt f 0 "new"
      awaitChild syncing
    crashHome
    readWhole 10 "/tmp/f"
  seenExactly ["old", "new"] outcomes

failedSync :: Assertion
failedSync = do
  outcomes <- forM (manySeeds 100) $ \seed -> do
    told <- inWorld' calm seed $ do
      let rates r = homeSteer (\sim m -> setDisk (simDisks sim) m diskErrors r)
      withFile "/tmp/f" ReadWrite $ \f -> do
        writeAt f 0 "old"
        sync f
        writeAt f 0 "new and longer"
        rates (0, 1)
        failsWith eIO (sync f)
        rates (0, 0)
        -- All looks well.
        sync f
        readAt f 0 100 ===> "new and longer"
      crashHome
      readWhole 100 "/tmp/f"
    assertBool "it is told" (any ("a sync of /tmp/f has failed: of 1 unsynced page write" `isInfixOf`) (toldNotes told))
    pure (toldResult told)
  -- Of what was added, any part; the rest is from before or new.
  assertBool (show (nub outcomes)) (all (`elem` outcomes) ["old" <> Char8.replicate 11 '\0', "new and longer"])
  assertBool (show (nub outcomes)) (and [ByteString.length o == 14 && ByteString.take 3 o `elem` ["old", "new"] | o <- outcomes])

-- | One version after another takes the place of a file; the crash comes at any time.
protocol :: Bool -> Assertion
protocol safe = do
  outcomes <- concat <$> overSeeds 50 rough {shortReads = 0} (forM [1 .. 20] attempt)
  let broken = catMaybes outcomes
  length outcomes @?= 1000
  if safe
    then assertBool (show (take 3 broken)) (null broken)
    else assertBool (show broken) (length (nub broken) > 10)
  where
    version :: Int -> ByteString
    version i = Char8.replicate (3000 * i) (toEnum (96 + i))
    -- The fault of the file after the crash.
    attempt :: Int -> Thread (Maybe String)
    attempt n = do
      let path = Char8.pack ("/tmp/f" <> show n)
          temporary = path <> ".new"
      withFile path WriteOnly (\f -> writeAt f 0 (version 1) >> sync f)
      acknowledged <- liftIO (newIORef 1)
      moment <- ByteString.foldl' (\m b -> 256 * m + fromIntegral b) 0 <$> randomBytes 3
      void . fork . void . errnoOf . forM_ [2 .. 6] $ \i -> do
        withFile temporary WriteOnly $ \f -> do
          setFileSize f 0
          writeAt f 0 (version i)
          when safe (sync f)
        renamePath temporary path
        withFile "/tmp" Directory sync
        liftIO (writeIORef acknowledged i)
      -- Up to 134 ms; all versions take about 200.
      sleep (nanoseconds (8 * moment))
      crashHome
      atLeast <- liftIO (readIORef acknowledged)
      bytes <- readWhole 100_000 path
      sleep (seconds 1)
      pure $
        if bytes `elem` map version [atLeast .. 6]
          then Nothing
          else Just (show (atLeast, map (\g -> (ByteString.take 1 g, ByteString.length g)) (ByteString.group bytes)))

comesBack :: Assertion
comesBack = do
  outcomes <- overSeeds 50 calm {diskCapacity = 8192} $ do
    withFile "/tmp/f" WriteOnly (\f -> writeAt f 0 (page 'x') >> sync f)
    removePath "/tmp/f"
    -- Its room is free now.
    withFile "/tmp/g" WriteOnly (\f -> writeAt f 0 (page 'y' <> page 'y') >> removePath "/tmp/g")
    crashHome
    there <- names "/tmp"
    when ("f" `elem` there) (readWhole 10_000 "/tmp/f" ===> page 'x')
    homeSteer (\sim m -> setDisk (simDisks sim) m diskRoom 4096)
    room <- errnoOf (withFile "/tmp/h" WriteOnly (\f -> writeAt f 0 "x"))
    let Errno full = eNOSPC
    -- The rest of the other file takes room, too.
    pure (["f"] == there, room == Left full)
  assertBool "came back" ((True, True) `elem` outcomes)
  assertBool "did not" ((False, False) `elem` outcomes)
  assertBool "room" ((True, False) `notElem` outcomes)

underWay :: Assertion
underWay = inWorld calm {descriptorLimit = 2} 1 $ do
  f <- openFile "/tmp/f" WriteOnly
  withScope $ \scope -> do
    writing <- forkIn scope (errnoOf (writeAt f 0 "x"))
    sleep (microseconds 10)
    homeSteer (crashDisk . simDisks)
    let Errno e = eIO
    awaitChild writing ===> Left e
  failsWith eBADF (writeAt f 0 "x")
  closeFile f
  -- The numbers are free.
  a <- openFile "/tmp/a" WriteOnly
  b <- openFile "/tmp/b" ReadWrite
  readAt b 0 9 ===> ""
  mapM_ closeFile [a, b]

writtenBack :: Assertion
writtenBack = do
  outcomes <- overSeeds 5 calm $ do
    withFile "/tmp/f" ReadWrite (\f -> writeAt f 0 (ByteString.replicate (5000 * 4096) 65))
    forM_ [1 .. 1100 :: Int] $ \i -> makeDirectory ("/tmp/" <> Char8.pack (show i))
    crashHome
    there <- names "/tmp"
    liftIO (assertBool "the first names" (all ((`elem` there) . Char8.pack . show) [1 .. 76 :: Int]))
    withFile "/tmp/f" ReadOnly (\f -> readAt f 0 (900 * 4096))
  -- The size came last and may be lost.
  assertBool "the first pages" (all (\b -> ByteString.null b || b == ByteString.replicate (900 * 4096) 65) outcomes)
  assertBool "and seen" (not (all ByteString.null outcomes))
