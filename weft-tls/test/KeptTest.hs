-- | Bytes received over TLS may be kept like any others.
module KeptTest (tests) where

import Control.Monad (forM_)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.IORef
import Data.Maybe (mapMaybe)
import Test.Tasty
import Test.Tasty.HUnit
import Weft.Http.Server
import Weft.Tls
import World

tests :: World -> TestTree
tests w = testCase "requests over TLS, and what is known of their connections, do not change" $ do
  kept <- newIORef []
  let numbers = [0 .. 199 :: Int]
      groups = [take 40 (drop from numbers) | from <- [0, 40 .. 160]]
      text i size = C.take size (C.concat (replicate (size + 1) (C.pack (show i))))
      path i = "/" <> text i (i * 7 `mod` 61)
      value i = text i (i * 13 `mod` 300 + 1)
      bytes final i = B.concat ["GET ", path i, " HTTP/1.1\r\nHost: localhost\r\nX-Value: ", value i, "\r\n", if final then "Connection: close\r\n\r\n" else "\r\n"]
      noting s = s {serverAccessLog = Just (\e -> modifyIORef' kept (e :))}
  serving (settingsOf w ["ecdsa"]) noting $ \served -> do
    tls <- clientTls (AuthoritiesFrom (directory w <> "/ca.pem")) Nothing
    forM_ groups $ \group -> withConnection served tls (\t -> exchange t [bytes (i == last group) i | i <- group])
  requests <- mapMaybe entryRequest . reverse <$> readIORef kept
  map requestPath requests @?= map path numbers
  map (requestField "x-value") requests @?= map (Just . value) numbers
  map (fmap securityServerName . clientSecurity . requestClient) requests @?= map (const (Just (Just "localhost"))) numbers
