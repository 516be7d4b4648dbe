-- | Pages and media types.
module PageTest (tests) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Date
import Weft.Http.Mime
import Weft.Http.Page
import Weft.Http.Path
import Weft.Http.Status

tests :: TestTree
tests =
  testGroup
    "pages"
    [ testProperty "no name gets into a page unescaped" prop_escaped,
      testProperty "every link leads to its entry" prop_links,
      testCase "order: directories first, then by name" order,
      testCase "orders that are asked for" orders,
      testCase "rows" rows,
      testCase "error pages" errors,
      testCase "sizes" $ map humanSize [0, 305, 1023, 1024, 1536, 10239, 10240, 1048575, 1048576, maxBound] @?= ["0 B", "305 B", "1023 B", "1 KiB", "1.5 KiB", "9.9 KiB", "10 KiB", "1023 KiB", "1 MiB", "7.9 EiB"],
      testCase "media types" mimeTypes
    ]

file :: ByteString -> ListingEntry
file name = ListingEntry name File 305 (HttpTime 784111777)

genName :: Gen ByteString
genName = C.pack <$> resize 10 (listOf1 (elements "ab<>&\"' :.%?#\xc3\xa4\xff\n"))

-- | A page has exactly the markup that a page with a harmless name has.
prop_escaped :: Property
prop_escaped = forAll genName $ \name ->
  let markup = C.filter (`elem` ("<>\"'" :: String)) . listingPage defaultOrder "/x/" . pure . file
      title text = C.filter (`elem` ("<>\"'" :: String)) (listingPage defaultOrder text [])
      wrong text = C.filter (`elem` ("<>\"'" :: String)) (errorPage notFound404 text)
   in markup name === markup "a" .&&. title ("/" <> name <> "/") === title "/a/" .&&. wrong name === wrong "a"

prop_links :: Property
prop_links = forAll (genName `suchThat` (\n -> n `notElem` [".", ".."] && C.notElem '\n' n)) $ \name ->
  let (_, after) = B.breakSubstring "<tr><td><a href=\"" (listingPage defaultOrder "/" [file name])
      link = C.takeWhile (/= '"') (B.drop 17 after)
   in fmap pathComponents (safePath ("/" <> link)) === Right [name]

order :: Assertion
order = do
  let entries = [file "b", ListingEntry "z" Directory 0 (HttpTime 0), file "a", ListingEntry "y" Directory 0 (HttpTime 0)]
      text = listingPage defaultOrder "/" entries
      at needle = B.length (fst (B.breakSubstring needle text))
      places = map at [">y/<", ">z/<", ">a<", ">b<"]
  assertBool (show places) (and (zipWith (<) places (drop 1 places)) && all (< B.length text) places)

orders :: Assertion
orders = do
  let at size name = (file name) {entrySize = size, entryModified = HttpTime (1000 - size)}
      entries = [at 20 "a", at 10 "b", at 20 "c", ListingEntry "z" Directory 4096 (HttpTime 1), ListingEntry "y" Directory 0 (HttpTime 2)]
      asked query = names (listingPage (orderFromQuery query) "/" entries)
      names page = case B.breakSubstring "<tr><td><a href=\"" page of
        (_, rest)
          | B.null rest -> ""
          | otherwise -> C.take 1 (B.drop 17 rest) <> names (B.drop 17 rest)
  map asked ["", "?sort=name", "?sort=name&order=desc", "?sort=size", "?order=desc&sort=size", "?sort=date", "?sort=date&order=desc", "?sort=colour&order=up", "?&&=&sort"]
    @?= ["yzabc", "yzabc", "zycba", "yzbac", "yzacb", "zyacb", "yzbac", "yzabc", "yzabc"]
  listingPage (Order BySize False) "/" entries `has` "<th aria-sort=\"ascending\"><a href=\"?sort=size&amp;order=desc\">Size</a></th>"
  listingPage (Order BySize True) "/" entries `has` "<th aria-sort=\"descending\"><a href=\"?sort=size\">Size</a></th>"

rows :: Assertion
rows = do
  listingPage defaultOrder "/" [file "a b"] `has` "<tr><td><a href=\"a%20b\">a b</a></td><td title=\"305 bytes\">305 B</td><td>1994-11-06 08:49</td></tr>"
  listingPage defaultOrder "/" [ListingEntry "d" Directory 4096 (HttpTime 0)] `has` "<tr><td><a href=\"d/\">d/</a></td><td></td><td>1970-01-01 00:00</td></tr>"
  listingPage defaultOrder "/x/" [] `has` "href=\"../\""
  assertBool "the root has no parent" (B.null (snd (B.breakSubstring "../" (listingPage defaultOrder "/" []))))
  listingPage defaultOrder "/" [file "javascript:alert(1)"] `has` "href=\"javascript%3Aalert%281%29\""

errors :: Assertion
errors = do
  errorPage notFound404 "no \"<such>\" file" `has` "<h1>404 Not Found</h1>\n<p>no &quot;&lt;such&gt;&quot; file</p>"
  errorPage notFound404 "" `has` "<!DOCTYPE html>"

mimeTypes :: Assertion
mimeTypes =
  map contentTypeFor ["a.html", "A.HTML", "a.css", "a.js", "a.mjs", "a.json", "a.svg", "a.png", "a.wasm", "a.tar.gz", "a", "a.unheard-of", "\xff.txt"]
    @?= ["text/html; charset=utf-8", "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8", "text/javascript; charset=utf-8", "application/json", "image/svg+xml", "image/png", "application/wasm", "application/x-tgz", "application/octet-stream", "application/octet-stream", "text/plain; charset=utf-8"]

has :: ByteString -> ByteString -> Assertion
has text needle = assertBool (show needle ++ " not in " ++ show text) (needle `B.isInfixOf` text)
