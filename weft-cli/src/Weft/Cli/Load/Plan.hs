{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : From the command line to a load
--
-- Reads what the options name, checks that it fits together, and renders the requests. An error is
-- one line.
module Weft.Cli.Load.Plan (Plan (..), makePlan) where

import Control.Exception (IOException, try)
import Control.Monad (forM, unless, when)
import Control.Monad.IO.Class (liftIO)
import Control.Monad.Trans.Except (ExceptT (..), except, runExceptT, throwE)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.Char (isAsciiUpper)
import Data.List.NonEmpty (NonEmpty (..))
import Data.List.NonEmpty qualified as NonEmpty
import Data.Maybe (fromMaybe, isJust, isNothing)
import GHC.Foreign qualified as Foreign
import GHC.IO.Encoding (getFileSystemEncoding)
import GHC.IO.Exception (ioe_description)
import Weft.Cli.Load.Options
import Weft.Cli.Load.Source
import Weft.Http.Client.Types (Target (..), Url (..), authority)
import Weft.Http.Client.Url (parseUrl, renderUrl)
import Weft.Http.Internal.Types (Field (..), Method (..), lookupField)
import Weft.Http.Response (BadField (..), checkField)

data Plan = Plan
  { planTarget :: !Target,
    planMethod :: !Method,
    planRequests :: ![Weighted Pattern],
    -- | The first URL, for the report.
    planName :: !String
  }

type Check = ExceptT String IO

-- | A plan, or the error message.
makePlan :: LoadOptions -> IO (Either String Plan)
makePlan o = runExceptT $ do
  fromList <- maybe (pure []) listed (loadList o)
  arguments <- mapM (fmap (Weighted 1) . liftIO . bytesOf) (loadUrls o)
  urls <- maybe (throwE "something is missing: URL... or --urls FILE (see --help)") pure (NonEmpty.nonEmpty (arguments <> fromList))
  when (isJust (loadRate o) && loadPipeline o > 1) (throwE "--pipeline does not go with --rate")
  resolved <- forM urls $ \(Weighted w text) -> Weighted w <$> except (urlPattern text)
  let Weighted _ (target, _) :| others = resolved
  case [other | Weighted _ (other, _) <- others, other /= target] of
    other : _ -> throwE ("all URLs must lead to one server: " <> origin target <> " and " <> origin other <> " are two")
    [] -> pure ()
  fields <- mapM (\text -> liftIO (bytesOf text) >>= except . fieldOf) (loadFields o)
  body <- mapM readBody (loadBody o)
  method <- maybe (pure (if isJust body then "POST" else "GET")) (liftIO . bytesOf) (loadMethod o)
  unless (isJust (checkMethod method)) (throwE (show method <> " is not a method"))
  let rendered (Pattern start ranges) =
        let before = method <> " "
            behind = " HTTP/1.1\r\n" <> B.concat [n <> ": " <> v <> "\r\n" | Field n v <- standard target fields body] <> "\r\n" <> fromMaybe "" body
         in Pattern (before <> start) ranges `followedBy` behind
      Weighted _ first :| _ = urls
  pure
    Plan
      { planTarget = target,
        planMethod = if method == "HEAD" then Head else Get,
        planRequests = NonEmpty.toList (fmap (\(Weighted w (_, path)) -> Weighted w (rendered path)) resolved),
        planName = C.unpack first <> (if null others then "" else " and " <> show (length others) <> " more")
      }
  where
    origin server = C.unpack (renderUrl (Url server ""))
    listed :: FilePath -> Check [Weighted ByteString]
    listed path = do
      content <- contentOf path (if path == "-" then B.getContents else B.readFile path)
      list <- either (\e -> throwE (path <> ": " <> e)) pure (parseList content)
      if null list then throwE (path <> ": there is no URL in it") else pure list
    readBody = \case
      '@' : path -> contentOf path (B.readFile path)
      text -> liftIO (bytesOf text)
    contentOf path act = liftIO (try act) >>= either (\e -> throwE (path <> ": " <> ioe_description (e :: IOException))) pure

-- | The bytes of an argument, whatever the locale.
bytesOf :: String -> IO ByteString
bytesOf text = getFileSystemEncoding >>= \names -> Foreign.withCString names text B.packCString

-- | The target of a URL, and its path with ranges. A URL without a scheme is an http URL.
urlPattern :: ByteString -> Either String (Target, Pattern)
urlPattern given = named $ do
  Pattern start ranges <- parsePattern text
  -- It must be a URL with the largest numbers inserted; the ranges must be in its path.
  url <- parseUrl (B.concat (start : [C.pack (show high) <> behind | (_, high, behind) <- ranges]))
  base <- parseUrl start
  when (urlTarget base /= urlTarget url) (Left "a range may only be in the path")
  pure (urlTarget url, Pattern (urlPath base) [(low, high, C.takeWhile (/= '#') behind) | (low, high, behind) <- ranges])
  where
    text = if "://" `B.isInfixOf` given then given else "http://" <> given
    named = either (\e -> Left (show' given <> " is no URL: " <> e)) Right
    show' = show . C.unpack

-- | @NAME: VALUE@.
fieldOf :: ByteString -> Either String Field
fieldOf text = case C.break (== ':') text of
  (_, "") -> Left (show (C.unpack text) <> " is not a header field (NAME: VALUE)")
  (name, value) ->
    let field = Field name (C.dropWhileEnd (== ' ') (C.dropWhile (== ' ') (B.drop 1 value)))
     in case checkField field of
          Nothing
            | C.map lower name `elem` ["content-length", "transfer-encoding", "connection", "expect"] -> Left ("the header field " <> C.unpack name <> " cannot be set")
            | otherwise -> Right field
          Just (BadName _) -> Left (show (C.unpack name) <> " is not the name of a header field")
          Just (BadValue _) -> Left ("the value of the header field " <> C.unpack name <> " cannot be sent")
  where
    lower c = if isAsciiUpper c then toEnum (fromEnum c + 32) else c

checkMethod :: ByteString -> Maybe ByteString
checkMethod m = if isNothing (checkField (Field m "")) && m /= "CONNECT" then Just m else Nothing

-- | The fields of a request, with the standard ones.
standard :: Target -> [Field] -> Maybe ByteString -> [Field]
standard target fields body =
  [Field "Host" (authority target) | absent "host"]
    <> [Field "User-Agent" "weft-load" | absent "user-agent"]
    <> fields
    <> [Field "Content-Length" (C.pack (show (B.length b))) | Just b <- [body]]
  where
    absent name = isNothing (lookupField name fields)

-- | Append a text.
followedBy :: Pattern -> ByteString -> Pattern
followedBy (Pattern start ranges) end = case reverse ranges of
  [] -> Pattern (start <> end) []
  (low, high, behind) : before -> Pattern start (reverse ((low, high, behind <> end) : before))
