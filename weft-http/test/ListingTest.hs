-- | Listings of directories: what is linked is served.
module ListingTest (tests) where

import Control.Monad
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.Word (Word8)
import Site
import System.Posix.ByteString qualified as Posix
import Test.Tasty
import Test.Tasty.HUnit hiding (assert)
import Test.Tasty.QuickCheck
import Weft
import Weft.Http.Path (encodeComponent)
import Weft.Http.Static
import Weft.Test.Message (Reply (..))

tests :: TestTree
tests =
  testGroup
    "listings"
    [ testProperty "every link of a listing is served, whatever the names" linksAreServed,
      testCase "a directory whose index cannot be had is not linked" refusedIndex
    ]

-- | Names of files and directories as a system may have them, likely ones of those that make
-- trouble among them.
newtype Names = Names [(ByteString, Bool)]
  deriving stock (Show)

instance Arbitrary Names where
  arbitrary = Names . nub' . filter (usable . fst) <$> resize 12 (listOf ((,) <$> name <*> arbitrary))
    where
      name = B.pack <$> resize 8 (listOf1 byte)
      byte = frequency [(3, arbitrary), (2, elements (B.unpack "\n\r\t\\\DEL%:?#&\"'<> .;+~\255")), (3, choose (0x61, 0x64))] :: Gen Word8
      usable n = B.notElem 0 n && B.notElem 0x2f n && n `notElem` [".", ".."]
      nub' = foldr (\n ns -> if fst n `elem` map fst ns then ns else n : ns) []
  shrink (Names names) = Names <$> shrinkList (const []) names

linksAreServed :: Names -> Property
linksAreServed (Names names) = cover 20 (any (odd' . fst) names) "a name that no path may contain" $ ioProperty $ do
  seen <- newIORef []
  withSite fill (\s -> s {staticListings = True}) $ \site -> do
    page <- fetch site "GET" "/" []
    replies <- forM (links (replyBody page)) (\link -> (link,) . replyStatus <$> fetch site "GET" ("/" <> link) [])
    liftIO (writeIORef seen replies)
  replies <- readIORef seen
  let plain = [encodeComponent n <> (if directory' then "/" else "") | (n, directory') <- names, not (odd' n), not ("." `B.isPrefixOf` n)]
  pure $
    counterexample (show replies) (all ((== 200) . snd) replies)
      .&&. counterexample (show (plain, map fst replies)) (all (`elem` map fst replies) plain)
  where
    odd' = B.any (\w -> w < 0x20 || w == 0x7f || w == 0x5c)
    fill dir = forM_ names $ \(name, directory') -> do
      let path = C.pack dir <> "/" <> name
      if directory' then Posix.createDirectory path 0o755 else Posix.createFile path 0o644 >>= Posix.closeFd

-- | The links of a listing's rows, but for the parent.
links :: ByteString -> [ByteString]
links page = case B.breakSubstring "<td><a href=\"" page of
  (_, rest)
    | B.null rest -> []
    | otherwise -> let (link, after') = C.break (== '"') (B.drop 13 rest) in [link | link /= "../"] <> links after'

refusedIndex :: Assertion
refusedIndex = withSite fill (\s -> s {staticListings = True}) $ \site -> do
  page <- fetch site "GET" "/" []
  liftIO (links (replyBody page) @?= ["good/"])
  where
    fill dir = do
      forM_ ["good", "bad"] $ \name -> Posix.createDirectory (C.pack dir <> "/" <> name) 0o755
      Posix.createSymbolicLink "/etc/hostname" (C.pack dir <> "/bad/index.html")
