{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Responses of WAI as those of the server
-- Stability   : not home
--
-- Makes of a response of WAI one of the server, which can be sent: what is wrong with it
-- shows here. Those that are made of files "Weft.Wai.Internal.File" makes.
module Weft.Wai.Internal.Response
  ( Making (..),
    Prepared (..),
    prepare,
  )
where

import Control.Monad ((>=>))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Builder (Builder)
import Data.ByteString.Char8 qualified as C
import Data.CaseInsensitive qualified as CI
import Data.Int (Int64)
import GHC.Foreign qualified as Foreign
import GHC.IO.Encoding (getFileSystemEncoding)
import Network.HTTP.Types qualified as Http
import Network.Wai.Internal qualified as Wai
import Weft
import Weft.Http.Request
import Weft.Http.Server
import Weft.Http.Status
import Weft.Wai.Internal.Content
import Weft.Wai.Internal.Perform

-- | What responses are made with.
data Making = Making
  { -- | For the field @Alt-Svc@.
    makingAltSvc :: !(Maybe ByteString),
    -- | Octets of a builder that are gathered.
    makingGathered :: !Int,
    -- | Where the actions of streams run.
    makingHost :: Host
  }

-- | A response that can be sent.
data Prepared
  = Ready !Response
  | -- | With this file.
    File !Status [Field] !ByteString !(Maybe Wai.FilePart)

-- | Make a response, to a request with this method.
prepare :: Making -> Method -> Wai.Response -> IO Prepared
prepare making method = \case
  Wai.ResponseBuilder status headers builder
    | bodiless method status -> pure (ready status headers (withheld method headers))
    | otherwise -> ready status headers <$> contentOf making headers builder
  Wai.ResponseStream status headers body
    | bodiless method status -> pure (ready status headers (withheld method headers))
    | otherwise -> pure . ready status headers . Streamed (announced headers) $ \sink ->
        running $ \performing -> [] <$ body (sinkWriteNow sink >=> mapM_ performing) (sinkFlushNow sink >>= mapM_ performing)
  Wai.ResponseFile status headers path part -> do
    encoding <- getFileSystemEncoding
    bytes <- Foreign.withCString encoding path B.packCString
    pure (File (statusOf status) (fieldsOf making headers) bytes part)
  Wai.ResponseRaw conversation _ ->
    pure . ready Http.status200 [] . Raw $ \duplex ->
      running $ \performing ->
        conversation (performing (duplexReceive duplex)) (performing . duplexSend duplex . pure)
  where
    running :: ((forall x. Thread x -> IO x) -> IO a) -> Thread a
    running run' = makingHost making (run' . performIn)
    ready status headers body = Ready (Response (statusOf status) (fieldsOf making headers) body Nothing)

statusOf :: Http.Status -> Status
statusOf = Status . Http.statusCode

-- | Made at once: they are going to be looked at, and a list of what is to be made takes longer.
fieldsOf :: Making -> Http.ResponseHeaders -> [Field]
fieldsOf making headers = maybe id ((:) . Field "Alt-Svc") (makingAltSvc making) (go headers)
  where
    go = \case
      [] -> []
      (name, value) : rest ->
        let !field = Field (CI.original name) value
            !fields = go rest
         in field : fields

-- | What a builder builds: as far as it goes, or to be sent while it goes on.
contentOf :: Making -> Http.ResponseHeaders -> Builder -> IO Body
contentOf making headers builder =
  gather (makingGathered making) builder >>= \case
    Whole [] -> pure NoContent
    Whole pieces -> pure (Bytes pieces)
    Begun pieces room step ->
      pure . Streamed (announced headers) $ \sink -> [] <$ continue liftIO (sinkWrite sink) pieces room step

-- | Has the response to this method, of this status, no content?
bodiless :: Method -> Http.Status -> Bool
bodiless method status = method == Head || hasNoBody (statusOf status)

-- | What takes its place.
withheld :: Method -> Http.ResponseHeaders -> Body
withheld method headers
  | method == Head = maybe Withheld Omitted (announced headers)
  | otherwise = NoContent

-- | The @Content-Length@ that an application has named.
announced :: Http.ResponseHeaders -> Maybe Int64
announced headers = do
  value <- lookup Http.hContentLength headers
  (n, rest) <- C.readInteger value
  if B.null rest && n >= 0 && n <= fromIntegral (maxBound :: Int64) then Just (fromInteger n) else Nothing
