{-# LANGUAGE BlockArguments #-}

-- |
-- Description : Registrations, on every source
module Test.Events.Descriptors
  ( descriptors,
  )
where

import Control.Exception (finally, try)
import Control.Monad (forM, forM_, join, replicateM, replicateM_, void, when)
import Data.IORef
import Data.List (sort)
import Foreign.C.Error (eINVAL)
import System.IO.Error (ioeGetErrorString)
import System.Mem (getAllocationCounter)
import System.Posix.IO
import System.Posix.Resource
import System.Posix.Types (Fd)
import Test.Events.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft.EventManager
import Weft.EventManager.Source (Poller (..), scriptNow, scripted, select, setReady)
import Weft.Internal.Backend.Readiness.Poller (noInterest)
import Weft.Internal.Data.Time
import Weft.Internal.Os.Sys qualified as Sys

-- | Interests, lifetimes, endings, reuse and numbers.
descriptors :: Rig -> TestTree
descriptors rig =
  testGroup "descriptors" $
    [ testCase "a persistent registration reports as long as it is ready" $ on \m link -> do
        (note, noted) <- collecting
        _ <- register m (linkNear link) toRead Persistent (const note)
        _ <- settled m
        noted >>= (@?= [])
        fill link
        _ <- settled m
        _ <- settled m
        seen <- noted
        assertBool ("reported again: " <> show seen) (length seen >= 2 && all (== readable) seen)
        empty link
        before <- length <$> noted
        _ <- settled m
        noted >>= (@?= before) . length,
      testCase "one that is one-shot reports once" $ on \m link -> do
        (note, noted) <- collecting
        registration <- register m (linkNear link) toRead OneShot (const note)
        fill link
        until' m "readable" (not . null <$> noted)
        _ <- settled m
        noted >>= (@?= [readable])
        unregister registration >>= (@?= False),
      testCase "one-shot again and again, from its callback" $ on \m link -> do
        count <- newIORef (0 :: Int)
        let again' _ _ = do
              modifyIORef count (+ 1)
              n <- readIORef count
              when (n < 5) $ void $ register m (linkNear link) toRead OneShot again'
        _ <- register m (linkNear link) toRead OneShot again'
        fill link
        until' m "five" ((== 5) <$> readIORef count)
        _ <- settled m
        readIORef count >>= (@?= 5),
      testCase "each interest hears of its own" $ on \m link -> do
        (note, noted) <- collecting
        reading <- register m (linkNear link) toRead Persistent \_ e -> note ('r', e)
        writing <- register m (linkNear link) toWrite OneShot \_ e -> note ('w', e)
        _ <- settled m
        noted >>= (@?= [('w', writable)])
        unregister writing >>= (@?= False)
        choke link
        both <- register m (linkNear link) (toRead <> toWrite) OneShot \_ e -> note ('b', e)
        _ <- settled m
        noted >>= (@?= [('w', writable)])
        fill link
        until' m "readable" ((>= 3) . length <$> noted)
        noted >>= (@?= [('r', readable), ('b', readable)]) . take 2 . drop 1
        unregister both >>= (@?= False)
        unregister reading >>= (@?= True)
        unchoke link,
      testCase "what waits to write is told when there is room" $ on \m link -> do
        (note, noted) <- collecting
        choke link
        _ <- register m (linkNear link) toWrite OneShot (const note)
        _ <- settled m
        noted >>= (@?= [])
        unchoke link
        until' m "writable" (not . null <$> noted)
        noted >>= (@?= [writable]),
      testCase "what is unregistered does not run, nor what a callback of the same event unregisters" $ on \m link -> do
        (note, noted) <- collecting
        gone <- register m (linkNear link) toRead Persistent \_ _ -> note "gone"
        unregister gone >>= (@?= True)
        unregister gone >>= (@?= False)
        later <- newIORef (pure False)
        _ <- register m (linkNear link) toRead OneShot \_ _ -> note "first" >> join (readIORef later) >>= note . show
        second <- register m (linkNear link) toRead Persistent \_ _ -> note "second"
        writeIORef later (unregister second)
        fill link
        until' m "first" (not . null <$> noted)
        _ <- settled m
        noted >>= (@?= ["first", "True"]),
      testCase "the other side goes: everybody is told" $ on \m link -> do
        (note, noted) <- collecting
        choke link
        _ <- register m (linkNear link) toRead OneShot \_ e -> note ('r', e `has` peerClosed)
        _ <- register m (linkNear link) toWrite OneShot \_ e -> note ('w', e `has` peerClosed)
        _ <- settled m
        hangUp link
        until' m "both" ((== 2) . length <$> noted)
        noted >>= (@?= [('r', rigTellsEndings rig), ('w', rigTellsEndings rig)]) . sort,
      testCase "that it goes can be waited for alone" $ on \m link ->
        if rigAwaitsEndings rig
          then do
            (note, noted) <- collecting
            _ <- register m (linkNear link) toSeePeerClose OneShot (const note)
            fill link
            _ <- settled m
            noted >>= (@?= [])
            hangUp link
            until' m "gone" (not . null <$> noted)
            noted >>= (@?= [peerClosed])
          else do
            (note, noted) <- collecting
            -- At once, where the source is asked by the registering thread.
            asked <- try (register m (linkNear link) toSeePeerClose OneShot (const note))
            _ <- settled m
            seen <- noted
            either (\e -> [show (e :: IOError) | not (null seen)]) (const [show seen | seen /= [refused]]) asked @?= [],
      testCase "closing tells all, in the next step, and registers nobody" $ on \m link -> do
        (note, noted) <- collecting
        choke link
        _ <- register m (linkNear link) toRead Persistent \_ e -> note ('r', e)
        w <- register m (linkNear link) toWrite OneShot \_ e -> note ('w', e)
        _ <- settled m
        closeWith m (linkNear link) \fd -> closeNear link fd >> (noted >>= (@?= []))
        noted >>= (@?= [])
        _ <- settled m
        noted >>= (@?= [('r', closed), ('w', closed)])
        unregister w >>= (@?= False),
      testCase "a failure to close is thrown, and they are told" $ on \m link -> do
        (note, noted) <- collecting
        _ <- register m (linkNear link) toRead OneShot (const note)
        r <- try (closeWith m (linkNear link) \_ -> ioError (userError "no"))
        either ioeGetErrorString show r @?= "no"
        _ <- settled m
        noted >>= (@?= [closed]),
      testCase "the next owner of a number hears of its own only" $ on \m link -> do
        (note, noted) <- collecting
        fill link
        _ <- register m (linkNear link) toRead Persistent \_ e -> note ("old", e)
        closeWith m (linkNear link) (closeNear link)
        withLink (again link) \next -> do
          _ <- register m (linkNear next) toRead OneShot \_ e -> note ("new", e)
          _ <- settled m
          noted >>= (@?= [("old", closed)])
          fill next
          until' m "the new one" ((== 2) . length <$> noted)
          noted >>= (@?= [("old", closed), ("new", readable)]),
      testCase "an event that was collected before a close is not the next owner's" $ withRig rig \m new _ ->
        withLink new \a -> withLink new \b -> do
          (note, noted) <- collecting
          isFirst <- newIORef True
          nexts <- newIORef []
          let hit other _ _ = do
                first <- atomicModifyIORef' isFirst (False,)
                when first do
                  closeWith m (linkNear other) (closeNear other)
                  next <- again other
                  modifyIORef' nexts (next :)
                  void $ register m (linkNear next) toRead OneShot (const note)
          fill a
          fill b
          _ <- register m (linkNear a) toRead OneShot (hit b)
          _ <- register m (linkNear b) toRead OneShot (hit a)
          _ <- settled m
          readIORef nexts >>= (@?= 1) . length
          noted >>= (@?= [])
          readIORef nexts >>= mapM_ release,
      testCase "a number that was closed without a word can be registered again" $ on \m link -> do
        (note, noted) <- collecting
        fill link
        _ <- register m (linkNear link) toRead OneShot \_ e -> note ("old", e)
        until' m "the old one" (not . null <$> noted)
        closeNear link (linkNear link)
        withLink (again link) \next -> do
          _ <- register m (linkNear next) toRead OneShot \_ e -> note ("new", e)
          fill next
          until' m "the new one" ((== 2) . length <$> noted)
          noted >>= (@?= [("old", readable), ("new", readable)]),
      testCase "a callback that throws leaves the others for the next step" $ withRig rig \m new _ -> do
        (note, noted) <- collecting
        links <- replicateM 3 new
        forM_ (zip [0 :: Int ..] links) \(i, link) -> do
          fill link
          register m (linkNear link) toRead OneShot \_ _ -> note i >> ioError (userError "callback")
        let attempt = try (step m (Just (nanoseconds 0))) :: IO (Either IOError Int)
        results <- replicateM 6 attempt
        length [() | Left _ <- results] @?= 3
        noted >>= (@?= [0, 1, 2]) . sort
        mapM_ release links,
      testCase "a callback cannot step" $ on \m link -> do
        (note, noted) <- collecting
        fill link
        _ <- register m (linkNear link) toRead OneShot \_ _ -> do
          r <- try (step m Nothing) :: IO (Either IOError Int)
          note (either (const "refused") show r)
        until' m "an answer" (not . null <$> noted)
        noted >>= (@?= ["refused"]),
      testCase "freeing tells all" $ withLinkOf \link -> do
        (note, noted) <- collecting
        (source, _, _) <- rigMake rig
        m <- newEventManager source
        registration <- register m (linkNear link) toRead Persistent (const note)
        freeEventManager m
        freeEventManager m
        noted >>= (@?= [closed])
        unregister registration >>= (@?= False)
        r <- try (register m (linkNear link) toRead OneShot \_ _ -> pure ())
        either (const "refused" :: IOError -> String) (const "registered") r @?= "refused"
    ]
      <> [testCase "numbers that are not open are refused" $ withRig rig \m _ _ -> refusals m | rigIsReal rig]
      <> [testCase "a number that is not open, from a callback, ends no later step" $ withRig rig \m _ _ -> strangeNumber m | rigIsReal rig]
      <> [testCase "regular files are always ready" $ withRig rig \m _ _ -> regular m | rigIsReal rig]
      <> [testCase "pipes: the reader goes" $ withRig rig \m _ _ -> pipes m | rigIsReal rig]
      <> [testCase "a failure to close leaves nothing that is reported for ever" $ withRig rig unclosed | not (rigIsReal rig)]
      <> [testCase "thousands that are closed before a step cost the same each" $ withRig rig manyClosed | not (rigIsReal rig)]
      <> [testCase "thousands" $ withRig rig \m new _ -> thousands m new]
      <> [testCase ("what a source refuses later is reported no more" <> concat [", unregistered" | later]) (refusedLater later) | rigName rig == "script", later <- [False, True]]
      <> [testCase "select refuses large numbers by an event" largeNumbers | rigName rig == "select"]
  where
    on body = withRig rig \m new _ -> withLink new (body m)
    withLinkOf body = rigMake rig >>= \(_, new, _) -> withLink new body
    thousands m new = do
      -- As many as the source and the process may have, half of them for far sides.
      soft <- softLimit <$> getResourceLimit ResourceOpenFiles
      let most = case soft of
            ResourceLimit n -> fromIntegral n `div` 2 - 200
            _ -> 5000
          count = if rigName rig == "select" then 400 else min 5000 most
      links <- replicateM count new
      hits <- newIORef (0 :: Int)
      forM_ links \link -> register m (linkNear link) toRead OneShot \_ _ -> modifyIORef' hits (+ 1)
      forM_ links fill
      until' m "all" ((== count) <$> readIORef hits)
      forM_ links \link -> register m (linkNear link) toRead Persistent \r _ -> modifyIORef' hits (+ 1) >> void (unregister r)
      until' m "all again" ((== 2 * count) <$> readIORef hits)
      _ <- settled m
      readIORef hits >>= (@?= 2 * count)
      forM_ links release

-- | With a script, whose clock moves on only in a wait that nothing ends.
unclosed :: EventManager -> IO Link -> IO Int -> IO ()
unclosed m new clock = withLink new \link -> do
  _ <- register m (linkNear link) toWrite Persistent \_ _ -> pure ()
  r <- try (closeWith m (linkNear link) \_ -> ioError (userError "no"))
  either ioeGetErrorString show r @?= "no"
  _ <- settled m
  _ <- register m (linkNear link) toRead OneShot \_ _ -> pure ()
  stepWaits m clock

-- | In allocated bytes, of which a few thousand each are enough.
manyClosed :: EventManager -> IO Link -> a -> IO ()
manyClosed m new _ = do
  links <- replicateM 4_000 new
  forM_ links \link -> do
    _ <- register m (linkNear link) toRead OneShot \_ _ -> pure ()
    closeWith m (linkNear link) (closeNear link)
  before <- getAllocationCounter
  step m (Just (nanoseconds 0)) >>= (@?= 4_000)
  after' <- getAllocationCounter
  assertBool (show (before - after')) (before - after' < 100_000_000)

-- | A source that cannot wait for the other side's end alone, as @select@: it is left alone once the reader has been told,
-- or, if the argument is true, has been unregistered.
refusedLater :: Bool -> IO ()
refusedLater unregisters = do
  (script, poller) <- scripted
  let watch number key trigger interest
        | interest == toSeePeerClose = pure (Sys.failureCode eINVAL)
        | otherwise = pollerWatch poller number key trigger interest
  withEventManager (pure poller {pollerWatch = watch}) \m -> do
    (note, noted) <- collecting
    reading <- register m 1000 toRead OneShot \_ e -> note ('r', e)
    _ <- register m 1000 toSeePeerClose Persistent \_ e -> note ('p', e)
    when unregisters $ unregister reading >>= (@?= True)
    setReady script 1000 readable
    _ <- settled m
    noted >>= (@?= [('r', readable) | not unregisters] <> [('p', refused)])
    stepWaits m (fromIntegral . durationNanoseconds <$> scriptNow script)

-- | Nothing is ready, so that a step waits.
stepWaits :: EventManager -> IO Int -> IO ()
stepWaits m clock = do
  -- The first may find that the manager was woken.
  _ <- step m (Just (milliseconds 1))
  before <- clock
  _ <- step m (Just (milliseconds 1))
  after' <- clock
  after' - before @?= 1_000_000

refusals :: EventManager -> IO ()
refusals m = do
  (a, b) <- createPipe
  closeFd a
  closeFd b
  results <- forM [a, -1] \fd -> try (register m fd toRead OneShot \_ _ -> pure ())
  map (either (const True :: IOError -> Bool) (const False)) results @?= [True, True]
  none <- try (withNull \fd -> register m fd noInterest OneShot \_ _ -> pure ())
  either (const True :: IOError -> Bool) (const False) none @?= True
  where
    withNull use = do
      fd <- openFd "/dev/null" ReadOnly defaultFileFlags
      use fd `finally` closeFd fd

-- | Above the limit of the process: with an array for all numbers below it, @poll@ would fail from then on.
strangeNumber :: EventManager -> IO ()
strangeNumber m = do
  soft <- softLimit <$> getResourceLimit ResourceOpenFiles
  let number = case soft of
        ResourceLimit n -> fromIntegral (min 0x3fffffff n) + 10
        _ -> 0x3fffffff
  _ <- setTimeout m (nanoseconds 0) (void (try (register m number toRead Persistent \_ _ -> pure ()) :: IO (Either IOError Registration)))
  replicateM_ 3 (settled m)

regular :: EventManager -> IO ()
regular m = do
  fd <- openFd "/proc/self/exe" ReadOnly defaultFileFlags
  (note, noted) <- collecting
  registration <- register m fd toRead Persistent (const note)
  _ <- register m fd toRead OneShot (const note)
  _ <- settled m
  _ <- settled m
  seen <- length <$> noted
  assertBool ("ready in each step: " <> show seen) (seen >= 3)
  unregister registration >>= (@?= True)
  _ <- settled m
  before <- length <$> noted
  _ <- settled m
  noted >>= (@?= before) . length
  closeWith m fd closeFd
  -- Nothing is left that keeps a step from waiting.
  timer <- newIORef False
  _ <- setTimeout m (milliseconds 2) (writeIORef timer True)
  _ <- settled m
  until' m "a timeout" (readIORef timer)

pipes :: EventManager -> IO ()
pipes m = do
  (a, b) <- createPipe
  setFdOption b NonBlockingRead True
  (note, noted) <- collecting
  _ <- register m b toWrite OneShot (const note)
  until' m "room" (not . null <$> noted)
  _ <- register m a toRead OneShot \_ e -> note e
  closeWith m b closeFd
  until' m "the end" ((== 2) . length <$> noted)
  (note', noted') <- collecting
  closeWith m a closeFd
  (c, d) <- createPipe
  _ <- register m d toWrite Persistent \r e -> note' e >> void (unregister r)
  closeFd c
  until' m "the reader goes" (not . null <$> noted')
  events <- noted'
  assertBool (show events) (all (`has` writable) events)
  closeWith m d closeFd

largeNumbers :: IO ()
largeNumbers = withEventManager select \m -> do
  fd <- openFd "/dev/null" ReadOnly defaultFileFlags
  large <- dupAbove fd
  (note, noted) <- collecting
  _ <- register m large toRead OneShot (const note)
  _ <- settled m
  noted >>= (@?= [refused])
  r <- try (withLoop select (`waitReadable` large)) :: IO (Either IOError Events)
  either show show r @?= "waitReadable: invalid argument (select (descriptors below 1,024) cannot watch descriptor 1500)"
  closeFd fd
  closeFd large

dupAbove :: Fd -> IO Fd
dupAbove fd = dupTo fd 1500
