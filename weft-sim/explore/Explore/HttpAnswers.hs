{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Requests one after the other, and many at once
--
-- Conversations are drawn: batches of requests that go out in pieces of any size. Each must be
-- answered as the files say, in order and byte for byte.
module Explore.HttpAnswers
  ( scenarios,

    -- * For other scenarios
    Asked (..),
    Conversation (..),
    asks,
    conversations,
    converse,
    pieces,
  )
where

import Control.Monad (void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.Maybe (isJust)
import Explore.Draw
import Explore.HttpClient
import Explore.HttpRig
import Explore.Scenario
import Weft
import Weft.Http.Date (HttpTime (..), formatDate)
import Weft.Scope
import Weft.Sim (Seed)
import Weft.Socket (SockAddr)
import Weft.Time

scenarios :: [Scenario]
scenarios =
  [ weathered "http/conversations" "every request is answered right and in order, in whatever pieces it comes" $ \seed ->
      conversations (drawnSetup seed) (mayLose seed) (draw seed (several 1 3 conversation)),
    weathered "http/bytes" "requests may come a byte at a time" $ \seed ->
      conversations (drawnSetup seed) (mayLose seed) (draw seed (pure . Conversation [1] (pure ()) <$> several 1 2 (several 1 3 asks))),
    weathered "http/dates" "answers are dated by the wall clock" dates,
    small "http/one" 1 "one request is answered" $
      conversations defaultSetup False [Conversation [1_000] (pure ()) [[plainly "/small.txt" (fileOf "small.txt")]]]
  ]
  where
    mayLose seed = weatherOf seed == Stormy

-- | A request, and what its answer must be.
data Asked = Asked
  { askedFor :: String,
    askedBytes :: ByteString,
    -- | Has the answer no body, whatever it says?
    askedBare :: Bool,
    askedCheck :: Answer -> Complaints
  }

-- | Batches of requests, and the sizes of the pieces in which each goes out.
data Conversation = Conversation [Int] (Thread ()) [[Asked]]

conversation :: Draw Conversation
conversation = do
  sizes <- pieces
  pause <- weighted [(3, pure (pure ())), (1, sleep . microseconds <$> between 1 20_000)]
  Conversation sizes pause <$> several 1 4 (several 1 5 asks)

-- | Sizes of pieces.
pieces :: Draw [Int]
pieces = several 1 5 (oneOf [between 1 4, between 1 60, between 100 2_000])

-- | A file, whole.
plainly :: ByteString -> ByteString -> Asked
plainly target content = Asked ("GET " <> Char8.unpack target) (ask target) False (status 200 <> bodyIs content)

-- | Any request.
asks :: Draw Asked
asks =
  weighted
    [ (6, anyFile >>= \(name, content) -> pure (plainly ("/" <> name) content)),
      (2, anyFile >>= \(name, content) -> pure (request "HEAD" ("/" <> name) [] True (status 200 <> lengthIs (ByteString.length content)))),
      (4, anyFile >>= range),
      (1, pure (request "GET" "/large.bin" ["Range: bytes=0-9,20000-20099"] False several')),
      (1, anyFile >>= \(name, _) -> pure (request "GET" ("/" <> name) ["If-None-Match: *"] True (status 304))),
      (1, anyFile >>= \(name, _) -> pure (request "GET" ("/" <> name) ["If-Match: \"other\""] False (status 412))),
      (2, oneOf (map pure ["/none", "/sub/none.txt", "/.hidden", "/large.bin/", "/small.txt/x"]) >>= \target -> pure (request "GET" target [] False (status 404))),
      (1, pure (request "GET" "/sub" [] False (status 301 <> (expectEqual "location" (Just "/sub/") . answerField "location")))),
      (1, pure (request "GET" "/sub/" [] False (status 200 <> bodyIs (fileOf "sub/index.html")))),
      (1, between 0 300 >>= \n -> pure (withBody (ByteString.replicate n 0x47) ["Content-Length: " <> number n])),
      (1, several 0 4 (between 1 50) >>= \sizes -> pure (withBody (chunks sizes) ["Transfer-Encoding: chunked"]))
    ]
  where
    anyFile = oneOf (map pure site)
    request method target fields =
      Asked (Char8.unpack (ByteString.intercalate " " (method : target : fields))) (askWith method target fields)
    withBody content fields =
      let asked = request "POST" "/small.txt" fields False (status 405)
       in asked {askedBytes = askedBytes asked <> content}
    chunks sizes = ByteString.concat ([hex n <> "\r\n" <> ByteString.replicate n 0x61 <> "\r\n" | n <- sizes] <> ["0\r\n\r\n"])
    hex n = let (q, r) = n `divMod` 16 in ByteString.pack [digit q, digit r]
    digit = ByteString.index "0123456789abcdef"
    several' a =
      status 206 a
        <> expect "both parts are in the body" (all (`ByteString.isInfixOf` answerBody a) [slice 0 10, slice 20_000 100])
    slice from n = ByteString.take n (ByteString.drop from (fileOf "large.bin"))

-- | A part of a file.
range :: (ByteString, ByteString) -> Draw Asked
range (name, content) = do
  from <- between 0 (max 0 (size - 1))
  to <- between from (size + 10)
  back <- between 1 (size + 10)
  oneOf
    [ pure (part (number from <> "-" <> number to) from (min (size - 1) to)),
      pure (part (number from <> "-") from (size - 1)),
      pure (part ("-" <> number back) (max 0 (size - back)) (size - 1)),
      pure (asked (number size <> "-") (status 416 <> (expectEqual "range" (Just ("bytes */" <> number size)) . answerField "content-range")))
    ]
  where
    size = ByteString.length content
    asked text = Asked ("bytes=" <> Char8.unpack text <> " of " <> Char8.unpack name) (askWith "GET" ("/" <> name) ["Range: bytes=" <> text]) False
    part text from to
      -- Of an empty file there is no part.
      | size == 0 = asked text (\a -> expect ("of an empty file: " <> show (answerStatus a)) (answerStatus a `elem` [200, 416]))
      | otherwise =
          asked text $
            status 206
              <> bodyIs (ByteString.take (to - from + 1) (ByteString.drop from content))
              <> (expectEqual "range" (Just ("bytes " <> number from <> "-" <> number to <> "/" <> number size)) . answerField "content-range")

status :: Int -> Answer -> Complaints
status wanted a = expectEqual "status" wanted (answerStatus a) <> expect "a date" (isJust (answerField "date" a))

bodyIs :: ByteString -> Answer -> Complaints
bodyIs content a = expect ("a body of " <> show (ByteString.length (answerBody a)) <> " bytes is not that of " <> show (ByteString.length content)) (answerBody a == content)

lengthIs :: Int -> Answer -> Complaints
lengthIs n a = expectEqual "length" (Just (number n)) (answerField "content-length" a)

number :: Int -> ByteString
number = Char8.pack . show

-- | Conversations at a time, each from a machine of its own.
conversations :: Setup -> Bool -> [Conversation] -> Thread Complaints
conversations setup lossy all' = serving setup $ \rig ->
  gather
    [ onNewMachine name (converse lossy (rigAddress rig) sizes pause batches)
      | (name, Conversation sizes pause batches) <- zip ["alice", "bob", "carol"] all'
    ]

-- | Have a conversation; then say that nothing more comes, and see the server end it. Where
-- connections may be lost, what has come until then is right.
converse :: Bool -> SockAddr -> [Int] -> Thread () -> [[Asked]] -> Thread Complaints
converse lossy address sizes pause batches =
  attempt (withClient address (`go` batches)) >>= \case
    Right wrong -> pure wrong
    Left e -> pure (expect ("a conversation failed: " <> show e) lossy)
  where
    go client [] = do
      finish client
      rest <- untilEnd client
      pure (expectEqual "after the last answer" "" rest)
    go client (batch : rest) = do
      (all', end) <- withScope $ \scope -> do
        -- An error of the connection is seen by the reader.
        forkIn_ scope (void (attempt (sendIn sizes pause client (ByteString.concat (map askedBytes batch)))))
        answers client (map askedBare batch)
      -- A request that the network holds up for long has taken too long to arrive.
      let got = if lossy then takeWhile ((/= 408) . answerStatus) all' else all'
          wrong = concat [map ((askedFor a <> ": ") <>) (askedCheck a g) | (a, g) <- zip batch got]
      case end of
        Nothing | null wrong, length got == length batch -> go client rest
        Just e | not lossy -> pure (wrong <> ["answer " <> show (length got + 1) <> " of " <> show (map askedFor batch) <> ": " <> show e])
        _ -> pure wrong

-- | The server's clock follows the machine's.
dates :: Seed -> Thread Complaints
dates seed = serving defaultSetup $ \rig ->
  onNewMachine "alice" $
    concat <$> mapM (dated rig) (draw seed (several 1 4 (between 0 5_000)))
  where
    dated rig ms = do
      sleep (milliseconds ms)
      before <- second
      got <- attempt (withClient (rigAddress rig) (\client -> sendIn [1_000] (pure ()) client (ask "/small.txt") >> answer False client))
      after' <- second
      pure $ case got of
        Right (Right a) ->
          body200 "dated" (fileOf "small.txt") (Right a)
            <> expect ("the date " <> show (answerField "date" a)) (answerField "date" a `elem` [Just (formatDate (HttpTime s)) | s <- [before - 1 .. after']])
        other -> expect ("no answer: " <> show other) (weatherOf seed == Stormy)
    second = (`div` 1_000_000_000) <$> wallClock
