{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Bodies that are sent up and down, and other protocols
--
-- Clients send bodies of any framing, in whatever pieces, to handlers that read all of it, some
-- or nothing, and answer with what they have read, at once or while it comes. What comes back
-- must be what a sequential reader would have made of it, byte for byte.
module Explore.HttpBodies
  ( scenarios,

    -- * For other scenarios
    echoing,
  )
where

import Control.Monad (unless, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Builder (byteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Maybe (fromMaybe)
import Explore.Draw
import Explore.HttpAnswers hiding (scenarios)
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Numeric (showHex)
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Scope
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/uploads" "bodies arrive as they were sent, and what follows them is found" $ \seed ->
      conversations atAnyPace (weatherOf seed == Stormy) (draw seed (several 1 2 uploading)),
    weathered "http/continue" "a client that waits for 100 is told in time, and only then" $ \seed ->
      continuing (weatherOf seed) (draw seed waiting),
    weathered "http/upgrade" "another protocol gets all that comes after its request, and nothing else" $ \seed ->
      upgrading (weatherOf seed) (draw seed upgrade)
  ]
  where
    -- Some of the clients send fewer octets a second than a server asks for by default.
    atAnyPace = (answering echoing) {setupServer = \s -> s {serverBodyRate = Nothing, serverResponseRate = Nothing}}

-- | The use that a handler makes of a body.
data Use
  = -- | It sends back what it reads, while it reads.
    Back
  | -- | As 'Back'; its response begins before anything is read.
    Early
  | -- | As 'Early', of a length that is known.
    Known
  | -- | It sends it back when all is there.
    Whole
  | -- | It reads one piece.
    First
  | -- | It reads nothing.
    Ignored
  deriving stock (Eq, Show, Enum, Bounded)

targetOf :: Use -> ByteString
targetOf use = "/" <> Char8.pack (show use)

-- | Does that.
echoing :: Handler
echoing request = case lookup (requestPath request) [(targetOf use, use) | use <- [minBound ..]] of
  Just Back -> pure (made Nothing copied)
  Just Early -> pure (made Nothing (\sink -> sinkFlush sink >> copied sink))
  Just Known -> case requestFraming request of
    FixedBody n -> pure (made (Just n) copied)
    _ -> pure (made Nothing copied)
  Just Whole -> plain ok200 [] <$> readBody 10_000_000 request
  Just First -> plain ok200 [] . ByteString.take 1 <$> receiveBody request
  _ -> pure (plain ok200 [] "ignored")
  where
    made size make = Response ok200 [] (Streamed size make) Nothing
    copied sink = do
      forBody_ request (\piece -> sinkWrite sink (byteString piece) >> sinkFlush sink)
      requestTrailers request

-- | A body with its framing: the fields, the bytes, the content and its trailers.
data Upload = Upload [ByteString] ByteString ByteString [(ByteString, ByteString)]

upload :: Int -> Draw Upload
upload most = do
  size <- weighted [(1, pure 0), (4, between 1 300), (2, between 1 (max 1 most))]
  salt <- between 0 99
  let content = noise salt size
  chunky <- chance 60
  if chunky
    then do
      -- Few enough to keep their overhead, and what a handler leaves unread, within the limits.
      sizes <- several 1 4 (weighted [(2, between (1 + size `div` 300) (20 + size `div` 300)), (2, between (1 + size `div` 300) 5_000)])
      extension <- oneOf (map pure ["", "", ";x", "; a=b", " ;c=\"d\""])
      trailers <- several 0 2 ((,) <$> oneOf (map pure ["sum", "x-other"]) <*> oneOf (map pure ["", "5", "a b"]))
      let parts = cut (cycle sizes) content
          chunk part = Char8.pack (showHex (ByteString.length part) "") <> extension <> "\r\n" <> part <> "\r\n"
          end = "0\r\n" <> ByteString.concat [name <> ": " <> value <> "\r\n" | (name, value) <- trailers] <> "\r\n"
      pure (Upload ["Transfer-Encoding: chunked"] (ByteString.concat (map chunk parts) <> end) content trailers)
    else pure (Upload ["Content-Length: " <> Char8.pack (show size)] content content [])
  where
    cut (n : ns) bytes
      | not (ByteString.null bytes) = let (part, rest) = ByteString.splitAt n bytes in part : cut ns rest
    cut _ _ = []

-- | A request with a body, and what its answer must be.
uploads :: Draw Asked
uploads = do
  use <- oneOf (map pure [minBound ..])
  Upload fields bytes content trailers <- upload 20_000
  let chunky = fields == ["Transfer-Encoding: chunked"]
      wanted = case use of
        First -> ByteString.take 1 content
        Ignored -> "ignored"
        _ -> content
      -- In chunks that answer has the trailers of its request.
      wantedTrailers = if use `elem` [Back, Early] || use == Known && (chunky || ByteString.null content) then trailers else []
  pure
    Asked
      { askedFor = show use <> " " <> show (ByteString.length content) <> " " <> show fields,
        askedBytes = askWith "POST" (targetOf use) fields <> bytes,
        askedBare = False,
        askedCheck = \a ->
          expectEqual "status" 200 (answerStatus a)
            <> expect ("a body of " <> show (ByteString.length (answerBody a)) <> " bytes, and not " <> show (ByteString.length wanted)) (answerBody a == wanted)
            <> expectEqual "trailers" wantedTrailers (answerTrailers a)
      }

uploading :: Draw Conversation
uploading = do
  sizes <- pieces
  pause <- weighted [(3, pure (pure ())), (1, sleep . microseconds <$> between 1 20_000)]
  Conversation sizes pause <$> several 1 3 (several 1 3 uploads)

-- 100 Continue ---------------------------------------------------------------------

-- | The behaviour of a client after it has sent @Expect: 100-continue@.
data Patience
  = -- | It waits for the answer.
    Waits
  | -- | It goes on after this number of milliseconds.
    Impatient Int
  | -- | It goes away then, or ends its direction only.
    GivesUp Int Bool
  deriving stock (Eq, Show)

waiting :: Draw (Use, Patience, Upload, [Int])
waiting =
  (,,,)
    <$> oneOf (map pure [minBound ..])
    <*> oneOf [pure Waits, Impatient <$> between 0 30, GivesUp <$> between 0 30 <*> chance 50]
    <*> upload 20_000
    <*> pieces

continuing :: Weather -> (Use, Patience, Upload, [Int]) -> Thread Complaints
continuing weather (use, patience, Upload fields bytes content _, sizes) = serving (answering echoing) $ \rig -> do
  wrong <- onNewMachine "alice" . lossy . withClient (rigAddress rig) $ \client -> do
    sendIn sizes (pure ()) client (askWith "POST" (targetOf use) ("Expect: 100-continue" : fields))
    case patience of
      Waits -> do
        told <- announced client
        let asked = use /= Ignored && use /= Early && not (ByteString.null bytes)
        case told of
          Just 100 -> do
            _ <- answer False client
            (expect (show use <> ": 100 for a body that nobody wants") asked <>) <$> finishing client
          Just 200
            | use == Early && not (ByteString.null bytes) -> finishing client
            | otherwise -> (expect (show use <> ": no 100") (not asked) <>) <$> judged (pure ()) client
          other -> pure ["answered with " <> show other]
      Impatient ms -> do
        sleep (milliseconds ms)
        withScope $ \scope -> do
          forkIn_ scope (void (attempt (sendIn sizes (pure ()) client bytes)))
          told <- announced client
          if told == Just 100 then answer False client >> judged (awaitAll scope) client else judged (awaitAll scope) client
      GivesUp ms half -> do
        sleep (milliseconds ms)
        if half
          then do
            finish client
            (all', took) <- within "the end of who gave up" (0, 4_000) (untilEnd client)
            pure ((if weather == Stormy then [] else took) <> expect ("who gave up was told " <> show all') (ByteString.null bytes || use `elem` [Ignored, Early] || all' `elem` ["HTTP/1.1 100 Continue\r\n\r\n", ""]))
          else pure []
  told <- reportsOf rig
  pure (wrong <> expect ("the operator was told " <> show told) (null told))
  where
    lossy act = attempt act >>= either (\e -> pure (expect ("failed: " <> show e) (weather == Stormy))) pure
    finishing client = withScope $ \scope -> do
      forkIn_ scope (void (attempt (sendIn sizes (pure ()) client bytes)))
      judged (awaitAll scope) client
    -- The last word, and the next request where the connection goes on.
    judged sent client =
      answer False client >>= \case
        Right a -> do
          let wanted = case use of
                First -> ByteString.take 1 content
                Ignored -> "ignored"
                _ -> content
              right = expect (show use <> " after all: " <> show a) (answerStatus a == 200 && answerBody a == wanted)
          if answerField "connection" a == Just "close"
            then (\rest -> right <> expectEqual "after the last answer" "" rest) <$> untilEnd client
            else do
              -- It reads no more than what it was sent of this body.
              () <- sent
              sendIn sizes (pure ()) client (ask "/next")
              next <- answer False client
              pure (right <> expect (show use <> ": the next answer is " <> show next) (either (const (weather == Stormy)) ((== "ignored") . answerBody) next))
        Left e -> pure (expect (show use <> ": no answer but " <> show e) (weather == Stormy))

-- Other protocols ------------------------------------------------------------------

-- | The body of the request, what follows it at once and later, the sizes of pieces, and
-- whether the handler reads the body.
data Upgrade = Upgrade Upload ByteString ByteString [Int] Bool

upgrade :: Draw Upgrade
upgrade = do
  bare <- chance 60
  body <- if bare then pure (Upload [] "" "" []) else upload 5_000
  Upgrade body <$> some <*> some <*> pieces <*> chance 50
  where
    some = noise <$> between 0 99 <*> weighted [(1, pure 0), (3, between 1 100), (1, between 1 40_000)]

upgrading :: Weather -> Upgrade -> Thread Complaints
upgrading weather (Upgrade (Upload fields bytes _ _) atOnce later sizes reads') =
  serving (answering handler) $ \rig -> onNewMachine "alice" . lossy . withClient (rigAddress rig) $ \client -> withScope $ \scope -> do
    forkIn_ scope . void . attempt $ do
      sendIn sizes (pure ()) client (askWith "POST" "/" ("Connection: upgrade" : "Upgrade: echo" : fields) <> bytes <> atOnce)
      sleep (milliseconds 3)
      sendIn sizes (sleep (microseconds 100)) client later
      finish client
    got <- answer False client
    case got of
      Right a | answerStatus a == 101 -> do
        rest <- untilEnd client
        pure (expect ("echoed " <> show (ByteString.length rest) <> " bytes of " <> show (ByteString.length said')) (rest == said' || weather == Stormy && rest `ByteString.isPrefixOf` said'))
      _ -> pure (expect ("upgraded: " <> show got) (weather == Stormy))
  where
    said' = atOnce <> later
    lossy act = attempt act >>= either (\e -> pure (expect ("failed: " <> show e) (weather == Stormy))) pure
    handler request = do
      when reads' (void (readBody 100_000 request))
      pure (Response switchingProtocols101 [Field "Upgrade" (fromMaybe "" (requestField "upgrade" request))] (Switch echo) Nothing)
    echo duplex = duplexReceive duplex >>= \piece -> unless (ByteString.null piece) (duplexSend duplex [piece] >> echo duplex)
