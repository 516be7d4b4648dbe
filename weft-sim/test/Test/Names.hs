-- |
-- Description : Simulated name resolution
module Test.Names (tests) where

import Control.Monad (forM_, void)
import Data.Either (isLeft)
import Data.List (isInfixOf, nub)
import Data.Maybe (isNothing)
import Network.Socket
import System.IO.Error (isDoesNotExistError)
import Test.InWorld
import Test.Tasty
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck
import Weft (liftIO, try)
import Weft.Sim.Internal.Conditions
import Weft.Sim.Internal.Names hiding (resolve)
import Weft.Socket (resolve)
import Weft.Time

tests :: TestTree
tests =
  testGroup
    "Names"
    [ testCase "machines, localhost, numbers" hosts,
      testCase "what listeners and clients ask" usual,
      testCase "services" servicesCase,
      testCase "families and flags" families,
      testCase "an unknown name is an error that names it, after a while" unknownName,
      testCase "IPv6 addresses, by hand" ipv6,
      testProperty "IPv6 addresses are read as they are shown" (\a -> readIPv6 (shown6 a) === Just a),
      testProperty "IPv4 addresses are read as they are shown" $ \a b c d ->
        readIPv4 (showDots [a, b, c, d]) === Just (tupleToHostAddress (a, b, c, d))
    ]

stream :: AddrInfo
stream = defaultHints {addrSocketType = Stream}

ask :: Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> Either String [AddrInfo]
ask = lookUp [("home", [tupleToHostAddress (10, 0, 0, 1)]), ("two", map tupleToHostAddress [(10, 0, 0, 2), (10, 1, 0, 2)])]

addresses :: Either String [AddrInfo] -> Either String [String]
addresses = fmap (map (show . addrAddress))

hosts :: Assertion
hosts = do
  addresses (ask (Just stream) (Just "home") (Just "80")) @?= Right ["10.0.0.1:80"]
  addresses (ask (Just stream) (Just "Two.") (Just "80")) @?= Right ["10.0.0.2:80", "10.1.0.2:80"]
  addresses (ask (Just stream) (Just "localhost") Nothing) @?= Right ["127.0.0.1:0", "[::1]:0"]
  addresses (ask (Just stream) (Just "10.11.12.13") (Just "0")) @?= Right ["10.11.12.13:0"]
  addresses (ask (Just stream) (Just "::ffff:1.2.3.4") (Just "1")) @?= fmap (map show) (Right [SockAddrInet6 1 0 (0, 0, 0xffff, 0x01020304) 0])
  addresses (ask (Just stream) (Just "fe80::1%3") (Just "1")) @?= fmap (map show) (Right [SockAddrInet6 1 0 (0xfe800000, 0, 0, 1) 3])
  forM_ ["", "nobody", "1.2.3", "1.2.3.256", "01.2.3.4", "1::2::3", "12345::"] $ \h ->
    assertBool h (isLeft (ask (Just stream) (Just h) (Just "80")))
  -- Without hints every kind of socket, as the C library has it.
  fmap (map (\a -> (addrSocketType a, addrProtocol a, addrFamily a))) (ask Nothing (Just "localhost") (Just "80"))
    @?= Right [(Stream, 6, AF_INET), (Datagram, 17, AF_INET), (Raw, 0, AF_INET)]
  fmap (nub . map addrFlags) (ask Nothing (Just "localhost") (Just "80")) @?= Right [[AI_ADDRCONFIG, AI_V4MAPPED]]

usual :: Assertion
usual = do
  addresses (ask (Just stream {addrFlags = [AI_PASSIVE]}) Nothing (Just "0")) @?= Right ["0.0.0.0:0", "[::]:0"]
  addresses (ask (Just stream) Nothing (Just "80")) @?= Right ["[::1]:80", "127.0.0.1:80"]
  addresses (ask (Just stream {addrFlags = [AI_ADDRCONFIG]}) (Just "localhost") (Just "80")) @?= Right ["127.0.0.1:80"]
  assertBool "nothing" (isLeft (ask Nothing Nothing Nothing))

servicesCase :: Assertion
servicesCase = do
  addresses (ask (Just stream) (Just "home") (Just "http")) @?= Right ["10.0.0.1:80"]
  addresses (ask (Just stream) (Just "home") (Just "https")) @?= Right ["10.0.0.1:443"]
  addresses (ask (Just stream) (Just "home") (Just "")) @?= Right ["10.0.0.1:0"]
  fmap (map addrSocketType) (ask Nothing (Just "home") (Just "domain")) @?= Right [Stream, Datagram]
  ask (Just stream {addrSocketType = Datagram}) (Just "home") (Just "http") @?= Left "Servname not supported for ai_socktype"
  ask (Just stream) (Just "home") (Just "nothing") @?= Left "Servname not supported for ai_socktype"
  ask (Just stream) (Just "home") (Just "-1") @?= Left "Servname not supported for ai_socktype"
  ask (Just stream {addrFlags = [AI_NUMERICSERV]}) (Just "home") (Just "http") @?= Left "Name or service not known"
  -- It wraps.
  addresses (ask (Just stream) (Just "home") (Just "99999")) @?= Right ["10.0.0.1:34463"]

families :: Assertion
families = do
  addresses (ask (Just stream {addrFamily = AF_INET6}) (Just "localhost") (Just "1")) @?= Right ["[::1]:1"]
  addresses (ask (Just stream {addrFamily = AF_INET}) (Just "localhost") (Just "1")) @?= Right ["127.0.0.1:1"]
  ask (Just stream {addrFamily = AF_INET6}) (Just "127.0.0.1") (Just "1") @?= Left "Address family for hostname not supported"
  ask (Just stream {addrFamily = AF_INET}) (Just "::1") (Just "1") @?= Left "Address family for hostname not supported"
  ask (Just stream {addrFamily = AF_UNIX}) (Just "home") (Just "1") @?= Left "ai_family not supported"
  fmap (map addrAddress) (ask (Just stream {addrFamily = AF_INET6, addrFlags = [AI_V4MAPPED]}) (Just "home") (Just "1"))
    @?= Right [SockAddrInet6 1 0 (0, 0, 0xffff, 0x0a000001) 0]
  ask (Just stream {addrFlags = [AI_NUMERICHOST]}) (Just "localhost") (Just "1") @?= Left "Name or service not known"
  fmap (map addrCanonName) (ask (Just stream {addrFlags = [AI_CANONNAME]}) (Just "two") (Just "1")) @?= Right [Just "two", Nothing]
  ask (Just stream {addrProtocol = 17}) (Just "home") (Just "1") @?= Left "ai_socktype not supported"

unknownName :: Assertion
unknownName = inWorld calm 1 $ do
  void (newMachine "server")
  start <- now
  r <- try (resolve (Just stream) (Just "nobody.example") (Just "80"))
  end <- now
  liftIO $ case r of
    Left e -> assertBool (show (e :: IOError)) (isDoesNotExistError e && "nobody.example" `isInfixOf` show e)
    Right as -> assertFailure (show as)
  liftIO (since start end @?= microseconds 100)
  found <- resolve (Just stream) (Just "server") (Just "80")
  liftIO (map (show . addrAddress) found @?= ["10.0.0.2:80"])

ipv6 :: Assertion
ipv6 = do
  readIPv6 "::" @?= Just (0, 0, 0, 0)
  readIPv6 "1::" @?= Just (0x10000, 0, 0, 0)
  readIPv6 "1:2:3:4:5:6:7:8" @?= Just (0x10002, 0x30004, 0x50006, 0x70008)
  readIPv6 "1:2:3:4:5:6:1.2.3.4" @?= Just (0x10002, 0x30004, 0x50006, 0x01020304)
  readIPv6 "1:2:3:4:5:6:7::" @?= Just (0x10002, 0x30004, 0x50006, 0x70000)
  forM_ ["", ":", ":::", "1:2:3:4:5:6:7", "1:2:3:4:5:6:7:8:9", "1:2:3:4:5:6:7::8", "::1::", "1.2.3.4::", "1:2", "g::", "::1.2.3", "1:", ":1"] $ \t ->
    assertBool t (isNothing (readIPv6 t))

shown6 :: HostAddress6 -> String
shown6 a = takeWhile (/= ']') (drop 1 (show (SockAddrInet6 0 0 a 0)))

showDots :: (Show a) => [a] -> String
showDots = foldr1 (\a b -> a <> "." <> b) . map show
