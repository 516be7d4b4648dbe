{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : The behaviour that only a simulated disk has
--
-- Virtual time, errors, a capacity, one disk for each machine, and operations that are
-- cancelled.
module Test.DiskFaults (faults, put) where

import Control.Monad (forM, forM_, replicateM, replicateM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Int (Int64)
import Data.List (isInfixOf, nub, sort)
import Foreign.C.Error
import GHC.IO.Exception (ioe_description)
import Test.InWorld
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Buffer
import Weft.File
import Weft.Internal.Core.SystemCall (File (..))
import Weft.Internal.Os.Descriptor (newDescriptor)
import Weft.Scope
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Disk.Device (Disk (..), setDisk)
import Weft.Sim.Internal.Disk.Transfer (contentsFrom)
import Weft.Sim.Internal.Kernel (Sim (..))
import Weft.Time

faults :: [TestTree]
faults =
  [ testCase "operations take virtual time, a slow disk more" times,
    testCase "a full disk takes what fits" fullDisk,
    testCase "errors at any rate" broken,
    testCase "no descriptor is left" tooMany,
    testCase "descriptors of other worlds and machines are refused" foreigners,
    testCase "every machine has its own disk and clock" machines,
    testCase "a cancelled operation has not happened" cancelled,
    testCase "closing under an operation: completed or ECANCELED" closing,
    testCase "reads and writes are short in rough weather" shortness,
    testCase "the same seed does the same" sameSeed
  ]

put :: ByteString -> ByteString -> Thread ()
put path bytes = withFile path WriteOnly (\f -> writeAt f 0 bytes)

times :: Assertion
times = inWorld calm 1 $ do
  f <- openFile "/tmp/f" ReadWrite
  let takes wanted action = do
        t <- now
        _ <- action
        t' <- now
        liftIO (since t t' @?= wanted)
  takes (microseconds 20) (writeAt f 0 "abc")
  takes (microseconds 20) (readAtIntoOnce f)
  takes (milliseconds 1) (sync f)
  takes (microseconds 20) (makeDirectory "/tmp/d")
  homeSteer (\sim m -> setDisk (simDisks sim) m diskSlowness 10)
  takes (microseconds 200) (pathStatus "/tmp/d")
  takes (milliseconds 10) (syncData f)
  where
    readAtIntoOnce f = liftIO (newBuffer 10) >>= \b -> readAtInto f 0 b 0 10

fullDisk :: Assertion
fullDisk = do
  told <- inWorld' calm {diskCapacity = 5 * 4096 + 100} 1 $ do
    withFile "/tmp/f" ReadWrite $ \f -> do
      buffer <- liftIO (newBuffer 30_000)
      -- Partly: as much as fits.
      writeBufferAt f 0 buffer 0 30_000 ===> 5 * 4096
      failsWith eNOSPC (writeAt f 20_480 "x")
      -- Existing bytes may be written again.
      writeAt f 100 "again"
      -- A hole takes no room.
      setFileSize f 1_000_000
      setFileSize f 4096
      writeAt f 4096 (ByteString.replicate 4096 1)
      removePath "/tmp/f"
      -- The room is free when no descriptor for it is open any more.
      withFile "/tmp/g" WriteOnly (\g -> failsWith eNOSPC (writeAt g 0 (ByteString.replicate 20_000 1)))
    withFile "/tmp/g" WriteOnly (\g -> writeAt g 0 (ByteString.replicate 20_000 1))
    homeSteer (\sim m -> setDisk (simDisks sim) m diskRoom 4096)
    withFile "/tmp/g" WriteOnly $ \g -> do
      writeAt g 0 "x"
      failsWith eNOSPC (writeAt g 20_480 "x")
    homeSteer (\sim m -> setDisk (simDisks sim) m diskRoom maxBound)
    withFile "/tmp/g" WriteOnly (\g -> writeAt g 20_480 "x")
  length (filter ("full" `isInfixOf`) (toldNotes told)) @?= 3

broken :: Assertion
broken = do
  told <- inWorld' calm 1 $ do
    put "/tmp/f" "abc"
    let rates r = homeSteer (\sim m -> setDisk (simDisks sim) m diskErrors r)
    withFile "/tmp/f" ReadWrite $ \f -> do
      rates (1, 0)
      failsWith eIO (readAt f 0 1)
      homeSteer (\sim _ -> either (\(Errno e) -> e) (const 0) <$> contentsFrom (simDisks sim) f 0 1) ===> (let Errno e = eIO in e)
      writeAt f 0 "x"
      sync f
      rates (0, 1)
      failsWith eIO (writeAt f 0 "y")
      failsWith eIO (sync f)
      readAt f 0 9 ===> "xbc"
      rates (0, 0)
      writeAt f 0 "z"
      readAt f 0 9 ===> "zbc"
  toldNotes told
    @?= [ "disk of home: a read of /tmp/f fails",
          "disk of home: a read of /tmp/f fails",
          "disk of home: a write of /tmp/f fails",
          "disk of home: a sync of /tmp/f fails",
          "disk of home: a sync of /tmp/f has failed: of 0 unsynced page writes 0 lost, 0 torn"
        ]
  -- One in four, of many.
  outcomes <- inWorld calm {readErrors = 0.25} 7 $ do
    put "/tmp/f" "abc"
    withFile "/tmp/f" ReadOnly (replicateM 1000 . errnoOf . readAtIntoNew)
  let failures = length [() | Left _ <- outcomes]
  assertBool (show failures) (failures > 180 && failures < 320)
  where
    readAtIntoNew f = liftIO (newBuffer 3) >>= \b -> readAtInto f 0 b 0 3

tooMany :: Assertion
tooMany = inWorld calm {descriptorLimit = 3} 1 $ do
  some <- mapM (`openFile` WriteOnly) ["/tmp/a", "/tmp/b", "/tmp/c"]
  failsWith eMFILE (openFile "/tmp/d" WriteOnly)
  -- It was not made.
  failsWith eNOENT (pathStatus "/tmp/d")
  mapM_ closeFile (take 1 some)
  -- A failure gives the number back.
  replicateM_ 3 (failsWith eNOENT (openFile "/tmp/d" ReadOnly))
  openFile "/tmp/d" WriteOnly >>= closeFile

foreigners :: Assertion
foreigners = do
  told <- inWorld' calm 1 $ do
    real <- File <$> liftIO (newDescriptor 5)
    other <- newMachine "other"
    there <- onMachine other (openFile "/tmp" Directory)
    let said action = either (\(e :: IOError) -> ioe_description e) (const "nothing") <$> try action
    a <- said (void (readAt real 0 10))
    b <- said (closeFile real)
    c <- said (void (openFileAt (At real) "x" ReadOnly defaultOpenFlags))
    failsWith eBADF (readAt real 0 10)
    d <- said (closeFile there)
    onMachine other (closeFile there)
    void (homeSteer (\sim _ -> contentsFrom (simDisks sim) real 0 10))
    pure [a, b, c, d]
  let real = "fd 5 is of the operating system; inside a simulation only those work that were opened there"
      there = "fd 1100000 is of machine other; a thread on home cannot use it"
  toldResult told @?= [real, real, real, there]
  toldWarnings told @?= ["read: " <> real, "close: " <> real, "open: " <> real, "read: " <> real, "close: " <> there, "send a file: " <> real]

machines :: Assertion
machines = inWorld calm 1 $ do
  other <- newMachine "other"
  put "/tmp/f" "home"
  s <- pathStatus "/tmp/f"
  onMachine other $ do
    failsWith eNOENT (pathStatus "/tmp/f")
    put "/tmp/f" "other"
    s' <- pathStatus "/tmp/f"
    liftIO (assertBool "another device" (statusDevice s /= statusDevice s'))
  crashHome
  onMachine other (readWhole 10 "/tmp/f") ===> "other"

cancelled :: Assertion
cancelled = do
  inWorld calm 1 $ do
    f <- openFile "/tmp/f" ReadWrite
    writer <- fork (writeAt f 0 "x")
    sleep (microseconds 10)
    cancel writer
    opener <- fork (void (openFile "/tmp/g" WriteOnly))
    sleep (microseconds 10)
    cancel opener
    sleep (milliseconds 1)
    readAt f 0 9 ===> ""
    failsWith eNOENT (pathStatus "/tmp/g")
  -- In rough weather it has happened or not: both are seen, and nothing else.
  outcomes <- forM (manySeeds 60) $ \seed -> inWorld rough {shortWrites = 0} seed $ do
    f <- openFile "/tmp/f" ReadWrite
    writer <- fork (writeAt f 0 "abc")
    sleep (microseconds 500)
    cancel writer
    sleep (milliseconds 10)
    readAt f 0 9
  sort (nub outcomes) @?= ["", "abc"]

closing :: Assertion
closing = do
  outcomes <- forM (manySeeds 60) $ \seed -> inWorld calm seed $ do
    f <- openFile "/tmp/f" WriteOnly
    outcome <- withScope $ \scope -> do
      writer <- forkIn scope (errnoOf (writeAt f 0 "abc"))
      sleep (microseconds 10)
      closeFile f
      awaitChild writer
    (,) outcome <$> readWhole 10 "/tmp/f"
  sort (nub outcomes) @?= [(Left 125, ""), (Right (), "abc")]

shortness :: Assertion
shortness = do
  counts <- forM (manySeeds 200) $ \seed -> inWorld rough seed $ withFile "/tmp/f" ReadWrite $ \f -> do
    buffer <- liftIO (newBuffer 1000)
    n <- writeBufferAt f 0 buffer 0 1000
    m <- readAtInto f 0 buffer 0 n
    pure (n, m)
  assertBool "short writes" (any ((< 1000) . fst) counts)
  assertBool "short reads" (any (uncurry (>)) counts)
  assertBool "never nothing" (all (\(n, m) -> n > 0 && m > 0) counts)
  assertBool "mostly whole" (length (filter (== (1000, 1000)) counts) > 100)

sameSeed :: Assertion
sameSeed = do
  let program :: Thread ([Int64], [Either () ByteString])
      program = do
        times' <- withFile "/tmp/log" Append $ \f -> withScope $ \scope -> do
          children <- forM ["a", "b", "c", "d"] $ \name -> forkIn scope (replicateM_ 5 (append f name >> sync f) >> now)
          map instantNanoseconds <$> mapM awaitChild children
        forM_ ["x", "y", "z"] $ \n -> put ("/tmp/" <> n) (ByteString.replicate 20_000 n') >> renamePath ("/tmp/" <> n) ("/tmp/" <> n <> n)
        crashHome
        contents <- forM ["/tmp/log", "/tmp/x", "/tmp/xx", "/tmp/y", "/tmp/yy", "/tmp/zz"] (fmap (either (\_ -> Left ()) Right) . errnoOf . readWhole 100_000)
        pure (times', contents)
      n' = 66
  runs <- forM (manySeeds 10) $ \seed -> do
    a <- inWorld' rough seed program
    b <- inWorld' rough seed program
    (toldResult a, toldNotes a) @?= (toldResult b, toldNotes b)
    assertBool "something is noted" (not (null (toldNotes a)))
    pure (toldResult a)
  length (nub runs) @?= 10
