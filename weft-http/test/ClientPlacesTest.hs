-- | Which request gets which connection, and URLs: the pure parts of the client.
module ClientPlacesTest (tests) where

import Data.ByteString.Char8 qualified as C
import Data.List qualified as List
import Data.Map.Strict qualified as Map
import Data.Sequence qualified as Seq
import System.Mem (getAllocationCounter)
import Test.QuickCheck
import Test.Tasty (TestTree, testGroup)
import Test.Tasty.HUnit
import Test.Tasty.QuickCheck (testProperty)
import Weft.Http.Client (Scheme (..), Target (..), Url (..), parseUrl, renderUrl)
import Weft.Http.Client.Places
import Weft.Http.Client.Url (relativeTo)

tests :: TestTree
tests =
  testGroup
    "client: places and URLs"
    [ testProperty "bounds are kept, nobody waits who could be served" (withMaxSuccess 2000 prop_sound),
      testProperty "those who wait for one target are served in their order" (withMaxSuccess 2000 prop_order),
      testProperty "closing returns those that are idle and leaves the rest" prop_closed,
      testCase "closing walks the targets once" closesInOnePass,
      testCase "an idle connection to another target makes room" makesRoom,
      testCase "the connection used last is used next" lastInFirstOut,
      testCase "URLs" urls,
      testCase "references" references
    ]

-- | Actions of users of the places; the numbers choose among the places there are.
data Act = Ask Int | Return Int | Break Int | Withdraw Int | Expire Int
  deriving stock (Show)

instance Arbitrary Act where
  arbitrary =
    frequency
      [ (5, Ask <$> choose (0, 2)),
        (3, Return <$> choose (0, 99)),
        (2, Break <$> choose (0, 99)),
        (1, Withdraw <$> choose (0, 99)),
        (1, Expire <$> choose (0, 99))
      ]

-- | A model of the users: those that wait (number, target, ticket), those that hold a place, which
-- connections are idle, and the order in which they were served.
data World = World
  { worldPlaces :: Places Int Int,
    worldWaiting :: [(Int, Target, Int)],
    worldHeld :: [(Int, Target)],
    worldIdle :: [(Int, (Target, Int))],
    worldServed :: [(Int, Target)],
    worldNext :: Int,
    worldFine :: Bool
  }

bounds :: Bounds
bounds = Bounds 4 3

target :: Int -> Target
target n = Target Http (C.pack ("host" <> show n)) 80

start :: World
start = World noPlaces [] [] [] [] 0 True

act :: World -> Act -> World
act w = \case
  Ask n ->
    let me = worldNext w
        (places, (ticket, orders)) = ask bounds (target n) me (worldPlaces w)
     in follow orders w {worldPlaces = places, worldWaiting = worldWaiting w <> [(me, target n, ticket)], worldNext = me + 1}
  Return i
    | Just (h@(me, t), rest) <- pick i (worldHeld w) ->
        let (places, (number, orders)) = giveBack bounds t me (worldPlaces w)
         in follow orders w {worldPlaces = places, worldHeld = rest, worldIdle = (fst h, (t, number)) : worldIdle w}
  Break i
    | Just ((_, t), rest) <- pick i (worldHeld w) ->
        let (places, orders) = giveUp bounds t (worldPlaces w) in follow orders w {worldPlaces = places, worldHeld = rest}
  Withdraw i
    | Just ((_, t, ticket), rest) <- pick i (worldWaiting w) ->
        let (places, mine) = withdraw t ticket (worldPlaces w)
         in w {worldPlaces = places, worldWaiting = rest, worldFine = worldFine w && mine}
  Expire i | Just ((_, (t, number)), rest) <- pick i (worldIdle w) ->
    case removeIdle bounds t number (worldPlaces w) of
      (places, Just orders) -> follow orders w {worldPlaces = places, worldIdle = rest}
      _ -> w {worldFine = False}
  _ -> w

pick :: Int -> [a] -> Maybe (a, [a])
pick i xs
  | null xs = Nothing
  | otherwise = case splitAt (i `mod` length xs) xs of
      (before, x : after') -> Just (x, before <> after')
      _ -> Nothing

-- | Each that was granted something waited; what is reused or closed was idle.
follow :: Orders Int Int -> World -> World
follow orders w = List.foldl' grant (List.foldl' closed w (ordersClosing orders)) (ordersGranted orders)
  where
    closed v c = v {worldIdle = filter ((/= c) . fst) (worldIdle v), worldFine = worldFine v && any ((== c) . fst) (worldIdle v)}
    grant v (me, what) = case [(t, ticket) | (m, t, ticket) <- worldWaiting v, m == me] of
      [(t, _)] ->
        let v' = v {worldWaiting = filter (\(m, _, _) -> m /= me) (worldWaiting v), worldHeld = (me, t) : worldHeld v, worldServed = (me, t) : worldServed v}
         in case what of
              Open -> v'
              Reuse c -> v' {worldIdle = filter ((/= c) . fst) (worldIdle v), worldFine = worldFine v && (fst <$> lookup c (worldIdle v)) == Just t}
      _ -> v {worldFine = False}

sound :: World -> Bool
sound w =
  worldFine w
    && placesOpen places == sum (map hostOpen hosts)
    && placesOpen places <= boundTotal bounds
    && all (\h -> hostOpen h <= boundEach bounds && length (hostIdle h) <= hostOpen h) hosts
    && null (candidates bounds places)
    && placesOpen places == length (worldHeld w) + length (worldIdle w)
    && idleCount places == length (worldIdle w)
    && sum (map (length . hostWaiting) hosts) == length (worldWaiting w)
  where
    places = worldPlaces w
    hosts = Map.elems (placesHosts places)

prop_sound :: Property
prop_sound = forAll (resize 60 (listOf arbitrary)) $ \acts ->
  let worlds = scanl act start acts
   in cover 20 (not (all (null . worldWaiting) worlds)) "somebody waits" (conjoin [counterexample (show (length (worldHeld w), worldWaiting w)) (sound w) | w <- worlds])

prop_order :: Property
prop_order = forAll (resize 60 (listOf arbitrary)) $ \acts ->
  let served = reverse (worldServed (List.foldl' act start acts))
      byTarget = Map.fromListWith (flip (<>)) [(t, [me]) | (me, t) <- served]
   in conjoin [counterexample (show (t, order)) (and (zipWith (<) order (drop 1 order))) | (t, order) <- Map.toList byTarget]

prop_closed :: Property
prop_closed = forAll (resize 60 (listOf arbitrary)) $ \acts ->
  let w = List.foldl' act start acts
      (places, idle) = close (worldPlaces w)
      hosts = Map.elems (placesHosts places)
   in cover 20 (not (null idle)) "some are idle" . counterexample (show (idle, worldIdle w)) $
        List.sort idle == List.sort (map fst (worldIdle w))
          && idleCount places == 0
          && placesOpen places == length (worldHeld w)
          && placesOpen places == sum (map hostOpen hosts)
          && all (\h -> hostOpen h > 0 || not (null (hostWaiting h))) hosts
          && sum (map (length . hostWaiting) hosts) == length (worldWaiting w)

-- | In allocated bytes.
closesInOnePass :: Assertion
closesInOnePass = do
  let many = 2_000
      host = Host 1 (Seq.singleton (0, ())) Seq.empty
      places = Places many (Map.fromList [(target n, host) | n <- [1 .. many]]) many False :: Places () ()
  idleCount places @?= many
  before <- getAllocationCounter
  length (snd (close places)) @?= many
  placesOpen (fst (close places)) @?= 0
  after' <- getAllocationCounter
  before - after' < 10_000_000 @? show (before - after')

makesRoom :: Assertion
makesRoom = do
  let full = List.foldl' act start ([Ask 0, Ask 0, Ask 1, Ask 1] <> [Return 0, Ask 2])
  sound full @? "sound"
  (length (worldHeld full), length (worldIdle full)) @?= (4, 0)

lastInFirstOut :: Assertion
lastInFirstOut = do
  let (p1, _) = ask bounds (target 0) 'a' noPlaces
      (p2, _) = ask bounds (target 0) 'b' p1
      (p3, _) = giveBack bounds (target 0) 'x' p2
      (p4, _) = giveBack bounds (target 0) 'y' p3
      (_, (_, orders)) = ask bounds (target 0) 'c' p4
  [(w, c) | (w, Reuse c) <- ordersGranted orders] @?= [('c', 'y')]

urls :: Assertion
urls = do
  fmap renderUrl (parseUrl "HTTP://Example.ORG:80") @?= Right "http://example.org/"
  fmap urlTarget (parseUrl "http://[::1]:8080/x") @?= Right (Target Http "::1" 8080)
  fmap renderUrl (parseUrl "http://[::1]:8080/x?y#z") @?= Right "http://[::1]:8080/x?y"
  fmap renderUrl (parseUrl "https://a?q") @?= Right "https://a/?q"
  mapM_ (\t -> either (const (pure ())) (\u -> assertFailure (show (t, u))) (parseUrl t)) ["", "a", "http://", "http:///x", "http://a:0/", "http://a:99999/", "http://u@a/", "http://a/ b", "http://a/\r\nX: y", "http://a\r\n/", "ftp://a/", "http://[::1/"]

references :: Assertion
references = do
  let base = Url (Target Http "a" 80) "/b/c/d;p?q"
      to r = fmap renderUrl (r `relativeTo` base)
  -- From RFC 3986, section 5.4, as far as it is about http.
  mapM_
    (\(r, expected) -> assertEqual (show r) (Right expected) (to r))
    [ ("g", "http://a/b/c/g"),
      ("./g", "http://a/b/c/g"),
      ("g/", "http://a/b/c/g/"),
      ("/g", "http://a/g"),
      ("//g", "http://g/"),
      ("?y", "http://a/b/c/d;p?y"),
      ("g?y", "http://a/b/c/g?y"),
      ("g#s", "http://a/b/c/g"),
      ("", "http://a/b/c/d;p?q"),
      (".", "http://a/b/c/"),
      ("..", "http://a/b/"),
      ("../g", "http://a/b/g"),
      ("../../../g", "http://a/g"),
      ("./g/.", "http://a/b/c/g/"),
      ("g/../h", "http://a/b/c/h"),
      ("https://h/x", "https://h/x")
    ]
