{-# LANGUAGE BlockArguments #-}

-- |
-- The pending operations that a backend reports, against those that the test knows: an operation is
-- pending from its submission until its completion has run.
module Test.Visit
  ( tests,
  )
where

import Control.Concurrent.MVar
import Control.Exception (bracket_)
import Control.Monad
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Data.List (sort)
import Data.Traversable (for)
import Foreign.Ptr (nullPtr)
import GHC.Conc (getAllocationCounter, setAllocationCounter)
import Network.Socket qualified as N
import System.Posix.Files (ownerModes)
import System.Posix.IO (OpenFileFlags (..), OpenMode (ReadWrite), defaultFileFlags, openFd)
import Test.QuickCheck
import Test.QuickCheck.Monadic (monadicIO, run)
import Test.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Internal.Backend
import Weft.Internal.Os.Descriptor
import Weft.Internal.Os.Pool (submitPool)
import Weft.Internal.Os.Sys qualified as Sys

-- | One step. The number picks a place, or an operation that was begun.
data Step
  = -- | Begin an operation at a place.
    Begin Int
  | -- | Let what waits at a place succeed.
    Feed Int
  | CancelOne Int
  | Collect
  | -- | Close a place's descriptor as far as the backend is concerned.
    ForgetPlace Int
  deriving stock (Show)

instance Arbitrary Step where
  arbitrary =
    frequency
      [ (8, Begin <$> index),
        (3, Feed <$> index),
        (3, CancelOne <$> index),
        (3, pure Collect),
        (1, ForgetPlace <$> index)
      ]
    where
      index = choose (0, 1000)

-- | The operation that is begun there, and how it is made to succeed.
data Place = Place
  { placeOperation :: Operation,
    placeFeed :: IO (),
    placeDescriptor :: Descriptor
  }

tests :: MakeBackend -> TestTree
tests make =
  testGroup
    "visit"
    [ testCase "nothing is pending at first" $ withRig make (visited >=> (@?= [])),
      testCase "allocates little" $ withRig make \rig -> withRoom 8 \p -> do
        links <- replicateM 200 unixPair
        for_ links \l -> start rig (Receive (near l) p 8)
        _ <- turn rig noWait
        let count = visit (rigBackend rig) (\_ _ n -> pure $! n + 1) (0 :: Int)
        count >>= (@?= 200)
        setAllocationCounter maxBound
        before <- getAllocationCounter
        n <- count
        later <- getAllocationCounter
        -- The count itself is 16 bytes for each.
        let bytes = fromIntegral (before - later) :: Int
        assertBool (show bytes <> " bytes for 200 operations") (bytes < 200 * 24)
        n @?= 200
        for_ links \l -> mapM_ (release rig) [near l, far l],
      testProperty "tells what is pending, and for whom" $ mapSize (* 3) $ withMaxSuccess 100 \steps ->
        cover 20 (length steps > 30) "long programs" . monadicIO . run . withRig make $ runSteps steps
    ]

runSteps :: [Step] -> Rig -> IO ()
runSteps steps rig = withPlaces rig \places -> do
  begun <- newIORef []
  counter <- newIORef 1
  let place i = places !! (i `mod` length places)
      check step = do
        now <- visited rig
        known <- readIORef begun
        expected <-
          concat <$> for known \(who, op, p) -> do
            rs <- readIORef (pendingResults p)
            length rs <= 1 @? "completed twice"
            pure [(who, op) | null rs]
        assertEqual ("after " <> show step) (sort expected) (sort now)
  for_ steps \step -> do
    case step of
      Begin i -> do
        let op = placeOperation (place i)
        who <- readIORef counter
        p <- startAs who rig op
        writeIORef counter (who + 1)
        modifyIORef' begun ((who, show op, p) :)
      Feed i -> placeFeed (place i)
      CancelOne i -> do
        known <- readIORef begun
        unless (null known) $ case known !! (i `mod` length known) of (_, _, p) -> abandon rig p
      Collect -> void (turn rig noWait)
      ForgetPlace i -> forget (rigBackend rig) (placeDescriptor (place i)) (pure ())
    check step

-- | The owner and the operation, of all that is pending.
visited :: Rig -> IO [(Int, String)]
visited rig = visit (rigBackend rig) (\op who seen -> pure ((who, show op) : seen)) []

-- | Sockets, pipes, a listener, a connection that does not come about, and a file
-- read by a pool whose threads are all busy.
withPlaces :: Rig -> ([Place] -> IO a) -> IO ()
withPlaces rig act =
  withRoom 64 \p -> withListener \listener _ -> withFullListener \full -> withScratch \dir -> do
    links <- replicateM 2 unixPair
    pipes <- replicateM 2 pipePair
    door <- N.withFdSocket listener newDescriptor
    caller <- N.socket N.AF_INET N.Stream 0 >>= toDescriptor
    file <- openFd (dir <> "/file") ReadWrite defaultFileFlags {creat = Just ownerModes} >>= newDescriptor . fromIntegral
    address <- N.getSocketName listener
    gate <- newEmptyMVar
    bracket_ (replicateM_ 4 (submitPool (rigPool rig) (readMVar gate))) (putMVar gate ()) $
      withSocketAddress full \to size -> do
        let poke' d = void (withBytes (B.pack [7]) (Sys.writeStream (descriptorNumber d)))
            knock = do
              s <- N.socket N.AF_INET N.Stream 0
              N.connect s address
              N.close s
        _ <-
          act $
            [Place (Receive (near l) p 8) (poke' (far l)) (near l) | l <- links]
              <> [Place (Await Reading (near l)) (poke' (far l)) (near l) | l <- links]
              <> [Place (ReadStream (near l) p 8) (poke' (far l)) (near l) | l <- pipes]
              <> [ Place (Accept door nullPtr nullPtr) knock door,
                   Place (Connect caller to size) (pure ()) caller,
                   Place (Sync file False) (pure ()) file,
                   Place (ReadAt file p 8 0) (pure ()) file
                 ]
        -- The memory and the descriptors go with the end of this action.
        for_ ([near l | l <- links <> pipes] <> [door, caller, file]) \d -> forget (rigBackend rig) d (pure ())
        shutdown (rigBackend rig)
    for_ (links <> pipes) \l -> closeNow (near l) >> closeNow (far l)
    mapM_ closeNow [caller, file]
