{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Applications of WAI as those of the server
-- Stability   : not home
--
-- Has a request answered by an application: makes the request, runs it, sends what it
-- responds with, and answers for it when it fails.
module Weft.Wai.Internal.Application
  ( Serving (..),
    serveWith,
  )
where

import Control.Exception (SomeAsyncException, SomeException, fromException, throwIO)
import Control.Exception qualified as E
import Control.Monad (when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.CaseInsensitive qualified as CI
import Data.Foldable (for_)
import Data.IORef
import Data.Int (Int64)
import GHC.Foreign qualified as Foreign
import GHC.IO.Encoding (getFileSystemEncoding)
import Network.HTTP.Types qualified as Http
import Network.Wai (mapResponseHeaders, responseStatus)
import Network.Wai.Internal qualified as Wai
import Weft hiding (Settings, defaultSettings)
import Weft.Http.Request
import Weft.Http.Server hiding (responseStatus)
import Weft.Http.Server.Types (Sent (..), knownLength)
import Weft.Http.Status
import Weft.Outside (Runner)
import Weft.Wai.Internal.Content
import Weft.Wai.Internal.File
import Weft.Wai.Internal.Perform
import Weft.Wai.Internal.Request
import Weft.Wai.Internal.Settings

-- | What serves an application.
data Serving = Serving
  { servingSettings :: !Settings,
    -- | Takes in what cannot be awaited.
    servingRunner :: !Runner
  }

-- | How far a response is.
data Progress = Unsent | UnderWay | Finished
  deriving stock (Eq)

-- | The application of the server that runs this one.
serveWith :: Serving -> (Wai.Request -> (Wai.Response -> IO Wai.ResponseReceived) -> IO Wai.ResponseReceived) -> Application
serveWith serving application request respond = do
  prefetched <- prefetch settings request
  styled (settingsStyle settings) (servingRunner serving) $ \(Perform performing) -> do
    receive <- bodyOf request (Perform performing) prefetched
    waiRequest <- toWai (settingsNoParsePath settings) receive request
    progress <- newIORef Unsent
    let answer response = do
          -- What is wrong with a response shows here, while it can be replaced.
          prepared <- prepare serving request response
          before <- readIORef progress
          when (before == Unsent) (writeIORef progress UnderWay)
          Sent <- performing (sendPrepared request prepared respond)
          writeIORef progress Finished
          for_ (settingsLogger settings) $ \logger ->
            logger waiRequest (responseStatus response) (fromIntegral <$> preparedLength prepared)
          pure Wai.ResponseReceived
    E.try (application waiRequest answer) >>= \case
      Right Wai.ResponseReceived -> pure Sent
      Left e -> failed waiRequest progress answer e
  where
    settings = servingSettings serving
    failed waiRequest progress answer e
      | Just (_ :: SomeAsyncException) <- fromException e = throwIO e
      | otherwise = do
          settingsOnException settings (Just waiRequest) e
          readIORef progress >>= \case
            Finished -> pure Sent
            -- Only its end can tell the client; as an 'IOError' it is not reported again.
            UnderWay -> throwIO (userError "a response was not completed")
            Unsent
              | Just BodyCutOff <- fromException e -> throwIO e
              | otherwise -> Sent <$ answer (afterFailure e (settingsOnExceptionResponse settings e))
    -- Where a body could not be received nobody knows where the next request begins.
    afterFailure e response = case fromException e of
      Just (_ :: BodyError) -> mapResponseHeaders (("Connection", "close") :) response
      Nothing -> response

-- Request bodies -------------------------------------------------------------------

-- | The pieces of a body that have come already.
data Prefetched
  = -- | There is no body.
    Nothing'
  | -- | All of it, or why there is not.
    AllOfIt (Either SomeException [ByteString])
  | OnDemand

-- Note [Small bodies come first]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An application may read the body inside the evaluation of a value, where it cannot be
-- suspended (Note [Where nothing can be suspended] in "Weft.Wai.Internal.Perform"): what
-- servant calls a request body is a lazy string. So a body that says that it is small is
-- received before the application begins. A client that waits for 100 is not told to go on
-- before the application asks for the body.

-- | Receive a small body.
prefetch :: Settings -> Request -> Thread Prefetched
prefetch settings request = case requestFraming request of
  NoBody -> pure Nothing'
  FixedBody n
    | settingsStyle settings == Direct,
      n <= fromIntegral (settingsPrefetchBody settings),
      requestExpectation request == NoExpectation ->
        AllOfIt <$> receiving []
  _ -> pure OnDemand
  where
    receiving pieces =
      try (receiveBody request) >>= \case
        Left e
          | Just (_ :: BodyError) <- fromException e -> pure (Left e)
          | otherwise -> throwM e
        Right piece
          | B.null piece -> pure (Right (reverse pieces))
          | otherwise -> receiving (piece : pieces)

-- | How an application gets the next piece.
bodyOf :: Request -> Perform -> Prefetched -> IO (IO ByteString)
bodyOf request (Perform performing) = \case
  Nothing' -> pure (pure B.empty)
  OnDemand -> pure (performing (receiveBody request))
  AllOfIt (Left e) -> pure (throwIO e)
  AllOfIt (Right pieces) -> do
    left <- newIORef pieces
    pure . atomicModifyIORef' left $ \case
      [] -> ([], B.empty)
      piece : rest -> (rest, piece)

-- Responses ------------------------------------------------------------------------

-- | A response that can be sent.
data Prepared
  = Ready !Response
  | File !Status [Field] !ByteString !(Maybe Wai.FilePart)

preparedLength :: Prepared -> Maybe Int64
preparedLength = \case
  Ready response -> knownLength (responseBody response)
  File _ _ _ part -> fromIntegral . Wai.filePartByteCount <$> part

sendPrepared :: Request -> Prepared -> (Response -> Thread Sent) -> Thread Sent
sendPrepared request prepared respond = case prepared of
  Ready response -> respond response
  File status fields path part -> sendingFile request status fields path part respond

-- | Make a response of the server of one of WAI.
prepare :: Serving -> Request -> Wai.Response -> IO Prepared
prepare serving request = \case
  Wai.ResponseBuilder status headers builder
    | bodiless status -> pure (ready status headers (withheld headers))
    | otherwise ->
        gather (settingsMaxBuilderResponseBufferSize settings) builder >>= \case
          Whole [] -> pure (ready status headers NoContent)
          Whole pieces -> pure (ready status headers (Bytes pieces))
          Begun pieces room writer ->
            pure . ready status headers . Streamed (announced headers) $ \sink ->
              [] <$ continue liftIO (sinkWrite sink) pieces room writer
  Wai.ResponseStream status headers body
    | bodiless status -> pure (ready status headers (withheld headers))
    | otherwise -> pure . ready status headers . Streamed (announced headers) $ \sink ->
        running $ \(Perform performing) -> [] <$ body (performing . sinkWrite sink) (performing (sinkFlush sink))
  Wai.ResponseFile status headers path part -> do
    encoding <- getFileSystemEncoding
    bytes <- Foreign.withCString encoding path B.packCString
    pure (File (statusOf status) (fieldsOf headers) bytes part)
  Wai.ResponseRaw conversation _ ->
    pure . ready Http.status200 [] . Raw $ \duplex ->
      running $ \(Perform performing) ->
        conversation (performing (duplexReceive duplex)) (performing . duplexSend duplex . pure)
  where
    settings = servingSettings serving
    running = styled (settingsStyle settings) (servingRunner serving)
    ready status headers body = Ready (Response (statusOf status) (fieldsOf headers) body Nothing)
    statusOf = Status . Http.statusCode
    fieldsOf headers = alternative [Field (CI.original name) value | (name, value) <- headers]
    alternative = maybe id ((:) . Field "Alt-Svc") (settingsAltSvc settings)
    bodiless status = requestMethod request == Head || hasNoBody (statusOf status)
    withheld headers
      | requestMethod request == Head = maybe Withheld Omitted (announced headers)
      | otherwise = NoContent

-- | The @Content-Length@ that an application has named.
announced :: Http.ResponseHeaders -> Maybe Int64
announced headers = do
  value <- lookup Http.hContentLength headers
  (n, rest) <- C.readInteger value
  if B.null rest && n >= 0 && n <= fromIntegral (maxBound :: Int64) then Just (fromInteger n) else Nothing
