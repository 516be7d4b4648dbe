{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Converts a response of WAI, which raises its faults ("Weft.Wai.Internal.Files": with files).
module Weft.Wai.Internal.Response (Making (..), Prepared (..), prepare, Constants, newConstants) where

import Control.Monad (when, (>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Builder.Extra (byteStringInsert)
import Data.ByteString.Char8 qualified as C
import Data.CaseInsensitive qualified as CI
import Data.Char (isAscii)
import Data.IORef
import Data.Int (Int64)
import GHC.Foreign qualified as Foreign
import GHC.IO.Encoding (getFileSystemEncoding)
import Network.HTTP.Types qualified as Http
import Network.Wai.Internal qualified as Wai
import Weft
import Weft.Http.Request
import Weft.Http.Server
import Weft.Http.Server.Layout (isLiteralField)
import Weft.Http.Status
import Weft.Internal.Core.Standing (samePointer)
import Weft.Wai.Internal.Content
import Weft.Wai.Internal.Perform

-- | The settings with which responses are made.
data Making = Making
  { -- | For the field @Alt-Svc@.
    makingAltSvc :: !(Maybe ByteString),
    -- | Octets of a builder that are gathered.
    makingGathered :: !Int,
    -- | Where the actions of streams run.
    makingHost :: Host
  }

data Prepared
  = Ready !Response
  | -- | With this file.
    File !Status ![Field] !ByteString !(Maybe Wai.FilePart)

prepare :: Making -> Constants -> Method -> Wai.Response -> IO Prepared
prepare making constants method = \case
  Wai.ResponseBuilder status headers builder
    | bodiless method status -> ready status headers (withheld method headers)
    | otherwise -> contentOf making headers builder >>= ready status headers
  Wai.ResponseStream status headers body
    | bodiless method status -> ready status headers (withheld method headers)
    | otherwise -> ready status headers . Streamed (announced headers) $ \sink ->
        makingHost making (pure ()) $ \place -> [] <$ streaming place sink body
  Wai.ResponseFile status headers path part -> do
    bytes <- encoded path
    pure $! File status (fieldsOf making headers) bytes part
  Wai.ResponseRaw conversation _ ->
    pure . Ready $ Response Http.status200 [] (Raw conversing) Nothing
    where
      conversing duplex = makingHost making (pure ()) $ \place ->
        conversation (performIn place (duplexReceive duplex)) (performIn place . duplexSend duplex . pure)
  where
    ready status headers body = convertedBefore making constants headers >>= \fields -> pure $! Ready (Response status fields body Nothing)

-- | A path in the encoding of the system. A NUL stays in it, so that opening it fails.
encoded :: FilePath -> IO ByteString
encoded path
  -- It is the same in all encodings of file systems.
  | all isAscii path = pure $! C.pack path
  | otherwise = getFileSystemEncoding >>= \encoding -> Foreign.withCStringLen encoding path B.packCStringLen

-- | Strict, since all fields are used and thunks would cost more.
fieldsOf :: Making -> Http.ResponseHeaders -> [Field]
fieldsOf making headers = maybe id ((:) . Field "Alt-Svc") (makingAltSvc making) $! go headers
  where
    go = \case
      [] -> []
      (name, value) : rest ->
        let !field = Field (CI.original name) value
            !fields = go rest
         in field : fields

-- | Headers that are literals of the program, and their fields: a list that the server knows by address.
newtype Constants = Constants (IORef Converted)

data Converted = Converted Http.ResponseHeaders [Field]

newConstants :: Making -> IO Constants
newConstants making = Constants <$> newIORef (Converted [] (fieldsOf making []))

-- | 'fieldsOf', with no memory of an application kept but literals.
convertedBefore :: Making -> Constants -> Http.ResponseHeaders -> IO [Field]
convertedBefore making (Constants ref) !headers = do
  Converted known fields <- readIORef ref
  if samePointer headers known then pure fields else convert making ref headers

convert :: Making -> IORef Converted -> Http.ResponseHeaders -> IO [Field]
convert making ref headers = fields <$ when (all isLiteralField fields) (writeIORef ref (Converted headers fields))
  where
    !fields = fieldsOf making headers
{-# NOINLINE convert #-}

-- | Run the body of a stream. Output is passed on when its page is full, at a flush, and at the end.
streaming :: Place -> Sink -> Wai.StreamingBody -> IO ()
streaming place sink body = do
  page <- newPage 512
  let give = sinkWriteNow sink . byteStringInsert >=> mapM_ (performIn place)
  body (write page give) (handOn page give >> sinkFlushNow sink >>= mapM_ (performIn place))
  handOn page give

contentOf :: Making -> Http.ResponseHeaders -> Builder -> IO Body
contentOf making headers builder =
  gather (makingGathered making) builder >>= \case
    Whole [] -> pure NoContent
    Whole pieces -> pure (Bytes pieces)
    Begun pieces room step ->
      pure . Streamed (announced headers) $ \sink -> [] <$ continue liftIO (sinkWrite sink . byteStringInsert) pieces room step

-- | Has the response to this method, of this status, no content?
bodiless :: Method -> Http.Status -> Bool
bodiless method status = isHead method || hasNoBody status

isHead :: Method -> Bool
isHead = \case
  Head -> True
  _ -> False

-- | The body that takes the place of one that must not be sent.
withheld :: Method -> Http.ResponseHeaders -> Body
withheld method headers
  | isHead method = maybe Withheld Omitted (announced headers)
  | otherwise = NoContent

-- | The @Content-Length@ that an application has named.
announced :: Http.ResponseHeaders -> Maybe Int64
announced headers = do
  value <- lookup Http.hContentLength headers
  (n, rest) <- C.readInteger value
  if B.null rest && n >= 0 && n <= fromIntegral (maxBound :: Int64) then Just (fromInteger n) else Nothing
