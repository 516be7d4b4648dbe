-- | The kept fields of responses to one head are those of each response.
module LayoutTest (tests) where

import Control.Monad (replicateM)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import ServerRig
import Test.QuickCheck
import Test.QuickCheck.Monadic (monadicIO, run)
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft hiding (run)
import Weft.Http.Server
import Weft.Http.Server.Layout
import Weft.Http.Server.Render
import Weft.Http.Status
import Weft.Socket
import Weft.Test.Loopback (untilFound)
import Weft.Test.Message (get)

tests :: TestTree
tests =
  testGroup
    "layout"
    [ testProperty "what is kept is what is rendered, whatever came before" prop_same,
      testCase "a handler's responses to one head have the fields of each" handlers
    ]

-- | Few lists, some of them faulty or of the server's business.
fieldsOf :: Gen [Field]
fieldsOf = frequency [(3, pure literal), (6, some'), (1, listOf odd')]
  where
    literal = [Field "X" "1", Field "Content-Type" "text/plain"]
    some' = elements [[], [Field "X" "2"], [Field "X" "1"], [Field "x" "1"], [Field "X" (B.copy "1"), Field "Content-Type" "text/plain"]]
    odd' = elements [Field "X" "a\r\nb", Field "a b" "", Field "Date" "x", Field "server" "y", Field "Connection" "keep-alive, Close", Field "content-length" "7", Field "Transfer-Encoding" "chunked", Field "Long" (B.replicate 5_000 0x61)]

-- | With a status, in a second of the clock.
prop_same :: Property
prop_same = forAll (listOf ((,,) <$> fieldsOf <*> frequency [(9, pure ok200), (1, pure notFound404)] <*> frequency [(5, pure False), (1, pure True)])) $ \turns -> monadicIO $ do
  found <- run $ do
    layout <- newLayout
    let go _ [] = pure []
        go n ((fields, status, ticks) : rest) = do
          let !second = if ticks then n + 1 else n
          laid <- layOut layout (owns !! second) status fields
          ((laid, renderBeginning (owns !! second) status fields) :) <$> go second rest
    go (0 :: Int) turns
  pure (map fst found === map snd found)
  where
    owns = [ownFields "weft" (C.pack (show n)) | n <- [0 :: Int ..]]

handlers :: Assertion
handlers = do
  let constant = [Field "X-Kind" "constant"]
      made n = [Field "X-Kind" (C.pack ("made " <> show (n :: Int)))]
      turns = concat [replicate 3 constant, replicate 3 (made 1), [made 2, made 2, made 3], replicate 3 [], concatMap (\n -> [made n, constant]) [1 .. 6], replicate 3 constant]
  left <- newIORef turns
  let handler _ = do
        fields <- liftIO (atomicModifyIORef' left (\case [] -> ([], []); fields : rest -> (rest, fields)))
        pure (plain ok200 fields "content")
  (answers, _) <- withHandler (\s -> s {serverAccessLog = Nothing, serverObserver = Nothing}) handler $ \rig ->
    rigClient rig $ \client -> replicateM (length turns) (sendAll client (get "/") >> untilFound client "content")
  [[line | line <- C.lines answer, "X-Kind" `B.isPrefixOf` line] | answer <- answers]
    @?= [[C.concat [name, ": ", value, "\r"] | Field name value <- fields] | fields <- turns]
