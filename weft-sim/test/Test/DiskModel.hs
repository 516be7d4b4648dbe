{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Random programs on simulated disks, beside a model
--
-- The model is a map from paths to bytes, written independently of the file system. Both
-- must give the same results and the same errors, also after everything was synced and the
-- power was lost.
module Test.DiskModel (tests) where

import Control.Monad (forM_, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.List (inits, isPrefixOf)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Word (Word8)
import Foreign.C.Error
import Foreign.C.Types (CInt)
import Test.InWorld
import Test.Tasty
import Test.Tasty.QuickCheck
import Weft
import Weft.File
import Weft.Sim.Internal.Conditions

tests :: TestTree
tests =
  testGroup
    "Random programs on disks"
    [ testProperty "reach the interesting cases" interesting,
      testProperty "calm: as the model" (agrees calm),
      testProperty "rough: as the model" (agrees rough),
      testProperty "calm, a crash after everything was synced: as the model" (survives calm),
      testProperty "rough, a crash after everything was synced: as the model" (survives rough),
      testProperty "after a crash the names are those of a moment since the last sync" prefixes,
      testProperty "after a crash bytes and size are those of moments since the last sync" moments
    ]

type Path = [ByteString]

data Op
  = Write Path Int Int Word8
  | AppendTo Path Int Word8
  | Read Path Int Int
  | SetSize Path Int
  | Create Path
  | Truncate Path
  | Remove Path
  | Rename Path Path
  | MakeDirectory Path
  | List Path
  deriving stock (Show)

data Value = Nothing' | Bytes ByteString | Names [ByteString]
  deriving stock (Eq, Show)

instance Arbitrary Op where
  arbitrary =
    frequency
      [ (5, Write <$> path <*> offset <*> count <*> arbitrary),
        (3, AppendTo <$> path <*> count <*> arbitrary),
        (4, Read <$> path <*> offset <*> choose (0, 20_000)),
        (2, SetSize <$> path <*> offset),
        (2, Create <$> path),
        (1, Truncate <$> path),
        (2, Remove <$> path),
        (4, Rename <$> path <*> path),
        (4, MakeDirectory <$> path),
        (1, List <$> path)
      ]
    where
      path = elements [["a"], ["b"], ["d"], ["d", "a"], ["d", "e"], ["d", "e", "b"]]
      offset = oneof [choose (0, 20), choose (4080, 4110), choose (0, 12_000), pure 8192]
      count = oneof [choose (0, 20), choose (4090, 4100), choose (0, 10_000)]
  shrink = \case
    Write p o n b -> [Write p o' n' b | (o', n') <- shrink (o, n)]
    AppendTo p n b -> [AppendTo p n' b | n' <- shrink n]
    Read p o n -> [Read p o' n' | (o', n') <- shrink (o, n)]
    _ -> []

real :: Path -> ByteString
real path = ByteString.intercalate "/" ("/tmp" : path)

perform :: Op -> Thread (Either CInt Value)
perform op = errnoOf $ case op of
  Write p o n b -> Nothing' <$ withFile (real p) WriteOnly (\f -> writeAt f (fromIntegral o) (ByteString.replicate n b))
  AppendTo p n b -> Nothing' <$ withFile (real p) Append (\f -> append f (ByteString.replicate n b))
  Read p o n -> Bytes <$> withFile (real p) ReadOnly (\f -> readAt f (fromIntegral o) n)
  SetSize p n -> Nothing' <$ withFile (real p) WriteOnly (\f -> setFileSize f (fromIntegral n))
  Create p -> Nothing' <$ bracket (openFileAt CurrentDirectory (real p) WriteOnly defaultOpenFlags {openExclusive = True}) closeFile pure
  Truncate p -> Nothing' <$ bracket (openFileAt CurrentDirectory (real p) WriteOnly defaultOpenFlags {openTruncate = True}) closeFile pure
  Remove p -> Nothing' <$ removePath (real p)
  Rename p q -> Nothing' <$ renamePath (real p) (real q)
  MakeDirectory p -> Nothing' <$ makeDirectory (real p)
  List p -> Names <$> withFile (real p) Directory listDirectory

-- | A directory is 'Nothing'.
type Model = Map Path (Maybe ByteString)

start :: Model
start = Map.singleton [] Nothing

-- | A path whose directories are there, or what is wrong with them.
reach :: Model -> Path -> Either Errno (Maybe (Maybe ByteString))
reach m p = mapM_ check (init (inits p)) >> Right (Map.lookup p m)
  where
    check q = case Map.lookup q m of
      Nothing -> Left eNOENT
      Just (Just _) -> Left eNOTDIR
      Just Nothing -> Right ()

step :: Model -> Op -> Either Errno (Model, Value)
step m = \case
  Write p o n b -> forWriting p $ \old -> if n == 0 then old else overlay old o (ByteString.replicate n b)
  AppendTo p n b -> forWriting p (<> ByteString.replicate n b)
  SetSize p n -> forWriting p (\old -> ByteString.take n (old <> ByteString.replicate n 0))
  Truncate p -> forWriting p (const "")
  Create p ->
    reach m p >>= \case
      Nothing -> put p (Just "")
      Just _ -> Left eEXIST
  MakeDirectory p ->
    reach m p >>= \case
      Nothing -> put p Nothing
      Just _ -> Left eEXIST
  Read p o n ->
    reach m p >>= \case
      Nothing -> Left eNOENT
      -- Reading nothing is no read.
      Just Nothing -> if n == 0 then Right (m, Bytes "") else Left eISDIR
      Just (Just bytes) -> Right (m, Bytes (ByteString.take n (ByteString.drop o bytes)))
  List p ->
    reach m p >>= \case
      Nothing -> Left eNOENT
      Just (Just _) -> Left eNOTDIR
      Just Nothing -> Right (m, Names [last q | q <- Map.keys m, length q == length p + 1, p `isPrefixOf` q])
  Remove p ->
    reach m p >>= \case
      Nothing -> Left eNOENT
      Just _ | hasChildren p -> Left eNOTEMPTY
      Just _ -> Right (Map.delete p m, Nothing')
  Rename p q -> do
    source <- reach m p
    target <- reach m q
    case (source, target) of
      (Nothing, _) -> Left eNOENT
      _ | p == q -> Right (m, Nothing')
      (Just Nothing, _) | p `isPrefixOf` q -> Left eINVAL
      (_, Just Nothing) | q `isPrefixOf` p -> Left eNOTEMPTY
      (Just Nothing, Just (Just _)) -> Left eNOTDIR
      (Just (Just _), Just Nothing) -> Left eISDIR
      (_, Just _) | hasChildren q -> Left eNOTEMPTY
      _ ->
        let (moving, staying) = Map.partitionWithKey (\r _ -> p `isPrefixOf` r) (Map.delete q m)
         in Right (staying <> Map.mapKeys (\r -> q <> drop (length p) r) moving, Nothing')
  where
    put p entry = Right (Map.insert p entry m, Nothing')
    hasChildren p = any (\q -> p `isPrefixOf` q && p /= q) (Map.keys m)
    forWriting p f =
      reach m p >>= \case
        Nothing -> put p (Just (f ""))
        Just Nothing -> Left eISDIR
        Just (Just old) -> put p (Just (f old))
    overlay old o new =
      ByteString.take o (old <> ByteString.replicate (max 0 (o - ByteString.length old)) 0) <> new <> ByteString.drop (o + ByteString.length new) old

-- | The results of all operations, and what is there in the end.
expected :: [Op] -> ([Either CInt Value], Model)
expected = go start
  where
    go m [] = ([], m)
    go m (op : rest) = case step m op of
      Left (Errno e) -> let (rs, m') = go m rest in (Left e : rs, m')
      Right (m1, v) -> let (rs, m') = go m1 rest in (Right v : rs, m')

-- | The content of the disk, read through the public operations.
observe :: Thread Model
observe = Map.fromList <$> go []
  where
    go p = do
      names <- withFile (real p) Directory listDirectory
      rest <- concat <$> mapM (look . (\n -> p <> [n])) names
      pure ((p, Nothing) : rest)
    look p = do
      s <- pathStatus (real p)
      case statusKind s of
        DirectoryFile -> go p
        _ -> (\bytes -> [(p, Just bytes)]) <$> readWhole 1_000_000 (real p)

agrees :: Conditions -> Positive Int -> [Op] -> Property
agrees conditions (Positive seed) ops = ioProperty $ do
  (results, model) <- inWorld conditions (fromIntegral seed) ((,) <$> mapM perform ops <*> observe)
  pure ((results, model) === expected ops)

survives :: Conditions -> Positive Int -> [Op] -> Property
survives conditions (Positive seed) ops = ioProperty $ do
  model <- inWorld conditions (fromIntegral seed) $ do
    mapM_ perform ops
    before <- observe
    forM_ (Map.toList before) $ \(p, entry) -> withFile (real p) (maybe Directory (const ReadOnly) entry) sync
    crashHome
    observe
  pure (model === snd (expected ops))

-- | Changes of names, and syncs of the directory that they all go through.
newtype Naming = Naming [Maybe Op]
  deriving stock (Show)

instance Arbitrary Naming where
  arbitrary = Naming <$> listOf (frequency [(6, Just <$> (arbitrary `suchThat` names)), (1, pure Nothing)])
    where
      names = \case
        Create _ -> True
        Remove _ -> True
        Rename _ _ -> True
        MakeDirectory _ -> True
        _ -> False
  shrink (Naming steps) = Naming <$> shrinkList (const []) steps

prefixes :: Positive Int -> Naming -> Property
prefixes (Positive seed) (Naming steps) = ioProperty $ do
  found <- inWorld calm (fromIntegral seed) $ do
    mapM_ (maybe (withFile "/tmp" Directory sync) (void . perform)) steps
    crashHome
    Map.keys <$> observe
  pure (counterexample (show found <> " is none of " <> show possible) (found `elem` possible))
  where
    possible = map Map.keys (go start [start] steps)
    -- The states that may come back, the last one first; whatever was changed in the
    -- directory itself before a sync is durable, and with it all before.
    go _ since [] = since
    go m since (Nothing : rest) = go m (takeUntilTouched since) rest
    go m since (Just op : rest) = case step m op of
      Left _ -> go m since rest
      Right (m', _) -> go m' (if Map.keys m' == Map.keys m then since else m' : since) rest
    -- Down to the state after the last change in the directory.
    takeUntilTouched (new : old : rest)
      | top new /= top old = [new]
      | otherwise = new : takeUntilTouched (old : rest)
    takeUntilTouched rest = rest
    top = filter ((<= 1) . length) . Map.keys

data Change = Put Int Word8 | Size Int | Sync
  deriving stock (Show)

instance Arbitrary Change where
  arbitrary = frequency [(6, Put <$> choose (0, 3) <*> choose (1, 255)), (2, Size <$> choose (0, 5)), (1, pure Sync)]

-- | Pages are written whole, and sizes are multiples of pages: every sector must hold one
-- byte that its page has had since the last sync, but for what was past the size that the file
-- had at that sync, which may be anything.
moments :: Positive Int -> [Change] -> Property
moments (Positive seed) changes = ioProperty $ do
  bytes <- inWorld calm (fromIntegral seed) $ do
    withFile "/tmp/f" ReadWrite (\f -> mapM_ (act f) (Sync : changes))
    crashHome
    readWhole 100_000 "/tmp/f"
  let sectors = [ByteString.take 512 (ByteString.drop (512 * i) bytes) | i <- [0 .. ByteString.length bytes `div` 512 - 1]]
      whole = and [ByteString.all (== ByteString.head s) s && ByteString.head s `elem` had (i `div` 8) | (i, s) <- zip [0 ..] sectors, i `div` 8 < snd (last states)]
  pure (counterexample (show (map ByteString.head sectors)) (ByteString.length bytes `elem` sizes && whole))
  where
    act f = \case
      Put i c -> writeAt f (fromIntegral (i * 4096)) (ByteString.replicate 4096 c)
      Size n -> setFileSize f (fromIntegral (n * 4096))
      Sync -> sync f
    -- Every page has its bytes at each moment since the last sync, and the file its size.
    states = foldl next [(Map.empty, 0)] changes
    next since@((pages, size) : _) = \case
      Put i c -> (Map.insert i c pages, max size (i + 1)) : since
      Size n -> (Map.filterWithKey (\i _ -> i < n) pages, n) : since
      Sync -> [(pages, size)]
    next [] = const []
    had :: Int -> [Word8]
    had i = map (Map.findWithDefault 0 i . fst) states
    sizes = map ((4096 *) . snd) states

-- | Programs reach the interesting cases.
interesting :: [Op] -> Property
interesting ops =
  checkCoverage
    . cover 20 (left eNOTDIR `elem` results) "not a directory"
    . cover 2 (left eNOTEMPTY `elem` results) "not empty"
    . cover 1 (left eINVAL `elem` results) "into itself"
    . cover 20 (or [True | (Rename p q, Right _) <- zip ops results, p /= q]) "renamed"
    . cover 10 (or [True | Right (Bytes bytes) <- results, ByteString.length bytes > 4096]) "read over a page's end"
    $ property True
  where
    results = fst (expected ops)
    left (Errno e) = Left e
