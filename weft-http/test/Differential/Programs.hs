-- |
-- Parsers that are programs of other languages: asked through a pipe, one line for each
-- conversation (the form is described in @read_h11.py@). A machine may lack
-- them; that is said, and is not a failure.
module Differential.Programs
  ( withPrograms,
    unhex,
  )
where

import Control.Concurrent (forkIO)
import Control.Exception (IOException, bracket, catch)
import Control.Monad (forM, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder qualified as Builder
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Lazy qualified as Lazy
import Data.Char (digitToInt, isAsciiUpper, toLower)
import Data.Maybe (catMaybes)
import Differential.Reading
import System.Directory (findExecutable)
import System.Exit (ExitCode (..))
import System.IO
import System.Process
import Weft.Test.Skipping (skipped)

-- | With h11 and llhttp, as far as they are there; says on standard error which is not.
withPrograms :: ([Peer] -> IO a) -> IO a
withPrograms use = do
  python <- firstWorking [("python3", ["-c", "import h11"]), ("/usr/bin/python3", ["-c", "import h11"])]
  node <- firstWorking [("node", ["--version"])]
  with "h11" python ["test/Differential/read_h11.py"] "no python3 with the module h11 (Debian: python3-h11)" $ \h11 ->
    with "llhttp" node ["--no-deprecation", "test/Differential/read_llhttp.js"] "no node (Debian: nodejs)" $ \llhttp ->
      use (catMaybes [h11, llhttp])
  where
    with name found args missing continue = case found of
      Nothing -> do
        skipped (missing <> ": nothing is compared with " <> name)
        continue Nothing
      Just program -> bracket (start program args) stop (continue . Just . peer name)
    start program args = createProcess (proc program args) {std_in = CreatePipe, std_out = CreatePipe}
    stop handles@(input, _, _, child) = do
      -- At the end of its input it ends.
      mapM_ hClose input
      void (waitForProcess child)
      cleanupProcess handles
    peer name = \case
      (Just input, Just output, _, _) -> Peer name (ask name input output) (view name) True
      _ -> Peer name (const (fail "no pipes")) id True
    -- h11 tells the value of this field in lower case.
    view "h11" m = m {messagePath = "", messageFields = map lowerCodings (messageFields m), messageTrailers = onceCounted (map lowerCodings (messageTrailers m))}
    view _ m = m {messagePath = ""}
    -- Nor that a trailer section repeats this one.
    onceCounted fields = case break isLength fields of
      (before, first : after) -> before <> (first : filter (not . isLength) after)
      (before, []) -> before
    isLength (n, _) = C.map lowerCase n == "content-length"
    lowerCodings (n, v) = (n, if C.map lowerCase n == "transfer-encoding" then C.map lowerCase v else v)
    lowerCase c = if isAsciiUpper c then toLower c else c

-- | The first program that is there and succeeds with these arguments.
firstWorking :: [(String, [String])] -> IO (Maybe String)
firstWorking [] = pure Nothing
firstWorking ((program, args) : others) =
  findExecutable program >>= \case
    Nothing -> firstWorking others
    Just path -> do
      works <- ((\(code, _, _) -> code == ExitSuccess) <$> readProcessWithExitCode path args "") `catch` \(_ :: IOException) -> pure False
      if works then pure (Just path) else firstWorking others

ask :: String -> Handle -> Handle -> [ByteString] -> IO [Reading String]
ask name input output conversations = do
  hSetBinaryMode input True
  hSetBinaryMode output True
  -- Beside the reading: the pipe is not large enough for all answers.
  _ <- forkIO $ do
    mapM_ (C.hPutStrLn input . Lazy.toStrict . Builder.toLazyByteString . Builder.byteStringHex) conversations
    hFlush input
  forM conversations $ \c -> do
    line <- C.hGetLine output
    case answer line of
      Just reading -> pure reading
      Nothing -> fail (name <> " says " <> show line <> " of " <> show c)

answer :: ByteString -> Maybe (Reading String)
answer line = case C.words line of
  ending : messages -> Reading <$> traverse message messages <*> readEnding ending
  [] -> Nothing
  where
    readEnding = \case
      "clean" -> Just Clean
      "partial" -> Just Partial
      "closed" -> Just Closed
      text | Just why <- C.stripPrefix "refused:" text -> Just (Refused (C.unpack why))
      _ -> Nothing
    message text = case C.split '/' text of
      [method, target, fields, body, trailers] ->
        Just (Message (unhex method) (unhex target) "" (pairs fields) (unhex body) (pairs trailers))
      _ -> Nothing
    pairs text = [(unhex name, unhex (C.drop 1 value)) | pair <- C.split ',' text, not (B.null pair), (name, value) <- [C.break (== '=') pair]]

-- | Decode hexadecimal digits.
unhex :: ByteString -> ByteString
unhex text = B.pack [fromIntegral (16 * digit i + digit (i + 1)) | i <- [0, 2 .. C.length text - 2]]
  where
    digit = digitToInt . C.index text
