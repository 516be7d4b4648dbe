{-# LANGUAGE OverloadedStrings #-}
{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : Applications of WAI as those of the server
-- Stability   : not home
--
-- Has a request answered by an application: makes the request, runs it, sends what it
-- responds with, and answers for it when it fails.
module Weft.Wai.Internal.Application
  ( newServerFor,
  )
where

import Control.Exception (Exception (..), SomeAsyncException, SomeException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void, (>=>))
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
import Network.Wai qualified as Wai (Application)
import Network.Wai.Internal qualified as Wai
import System.Timeout (Timeout)
import Weft hiding (Settings, defaultSettings)
import Weft.Http.Request
import Weft.Http.Server hiding (responseStatus)
import Weft.Http.Server.Types (knownLength)
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
    -- | Where applications run.
    servingHost :: Host,
    servingChooser :: !Chooser
  }

-- | How far a response is.
data Progress = Unsent | UnderWay | Finished
  deriving stock (Eq)

-- | A server for this application. The runner takes in what cannot be awaited.
newServerFor :: Settings -> Runner -> Wai.Application -> Thread Server
newServerFor settings runner application = do
  chooser <- newChooser (settingsStyle settings)
  let host :: Host
      host = hostOf chooser runner
      serving = Serving settings host chooser
  newServerPlain (serverSettingsOf settings) $ \_ ->
    PlainApplication (host . curry) (answering serving application)

-- | Have a request answered. The last function sends a response, or says what does.
answering :: Serving -> Wai.Application -> (Way, Perform) -> Request -> (Response -> IO (Maybe (Thread ()))) -> IO ()
answering serving application (way, Perform performing) request sending = do
  receive <- bodyOf settings request way (Perform performing)
  waiRequest <- toWai (settingsNoParsePath settings) receive request
  progress <- newIORef Unsent
  watch <- beginWatch chooser
  let answer response = do
        -- What is wrong with a response shows here, while it can be replaced.
        prepared <- prepare serving request response
        before <- readIORef progress
        unless (before == Unsent) $ throwIO (userError "an application has answered a request twice")
        writeIORef progress UnderWay
        endWatch chooser way watch
        case prepared of
          Ready ready -> sending ready >>= mapM_ performing
          File status fields path part ->
            performing $ sendingFile request status fields path part (\ready -> liftIO (sending ready) >>= sequence_)
        writeIORef progress Finished
        for_ (settingsLogger settings) $ \logger ->
          logger waiRequest (responseStatus response) (fromIntegral <$> preparedLength prepared)
        pure Wai.ResponseReceived
      failed e
        | Just (_ :: Timeout) <- fromException e,
          way == OnWorker = do
            -- Its own time limit would have received it.
            misdirected chooser
            failure (toException Misdirected)
        | Just (_ :: SomeAsyncException) <- fromException e = throwIO e
        | otherwise = failure e
      failure e = do
        settingsOnException settings (Just waiRequest) e
        readIORef progress >>= \case
          Finished -> pure ()
          -- Only its end can tell the client; as an 'IOError' it is not reported again.
          UnderWay -> throwIO (userError "a response was not completed")
          Unsent
            | Just BodyCutOff <- fromException e -> throwIO e
            | otherwise -> void (answer (afterFailure e (settingsOnExceptionResponse settings e)))
  void (application waiRequest answer) `E.catch` failed
  where
    settings = servingSettings serving
    chooser = servingChooser serving
    -- Where a body could not be received nobody knows where the next request begins.
    afterFailure e response = case fromException e of
      Just (_ :: BodyError) -> mapResponseHeaders (("Connection", "close") :) response
      Nothing -> response

-- | A request has received the time limit of another ('System.Timeout.timeout').
data Misdirected = Misdirected
  deriving stock (Show)

instance Exception Misdirected where
  displayException Misdirected =
    "this request was ended by the time limit (System.Timeout.timeout) of another, which waited for its client; \
    \from now on applications run on threads of their own, if that is not ruled out by setApplicationStyle Direct"

-- Request bodies -------------------------------------------------------------------

-- Note [Small bodies come first]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An application may read the body inside the evaluation of a value, where it cannot be
-- suspended (Note [Where nothing can be suspended] in "Weft.Wai.Internal.Perform"): what
-- servant calls a request body is a lazy string. So a body that says that it is small is
-- received before the application begins. A client that waits for 100 is not told to go on
-- before the application asks for the body.

-- | How an application gets the next piece; a small body has been received then.
bodyOf :: Settings -> Request -> Way -> Perform -> IO (IO ByteString)
bodyOf settings request way (Perform performing) = case requestFraming request of
  NoBody -> pure (pure B.empty)
  FixedBody n
    | way == OnWorker,
      n <= fromIntegral (settingsPrefetchBody settings),
      requestExpectation request == NoExpectation ->
        performing (receiving []) >>= \case
          -- For the application, which may handle it.
          Left e -> pure (throwIO e)
          Right pieces -> do
            left <- newIORef pieces
            pure . atomicModifyIORef' left $ \case
              [] -> ([], B.empty)
              piece : rest -> (rest, piece)
  _ -> pure (performing (receiveBody request))
  where
    receiving pieces =
      try (receiveBody request) >>= \case
        Left e
          | Just (_ :: BodyError) <- fromException e -> pure (Left e)
          | otherwise -> throwM (e :: SomeException)
        Right piece
          | B.null piece -> pure (Right (reverse pieces))
          | otherwise -> receiving (piece : pieces)

-- Responses ------------------------------------------------------------------------

-- | A response that can be sent.
data Prepared
  = Ready !Response
  | File !Status [Field] !ByteString !(Maybe Wai.FilePart)

preparedLength :: Prepared -> Maybe Int64
preparedLength = \case
  Ready response -> knownLength (responseBody response)
  File _ _ _ part -> fromIntegral . Wai.filePartByteCount <$> part

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
        running $ \performing -> [] <$ body (sinkWriteNow sink >=> mapM_ performing) (sinkFlushNow sink >>= mapM_ performing)
  Wai.ResponseFile status headers path part -> do
    encoding <- getFileSystemEncoding
    bytes <- Foreign.withCString encoding path B.packCString
    pure (File (statusOf status) (fieldsOf headers) bytes part)
  Wai.ResponseRaw conversation _ ->
    pure . ready Http.status200 [] . Raw $ \duplex ->
      running $ \performing ->
        conversation (performing (duplexReceive duplex)) (performing . duplexSend duplex . pure)
  where
    settings = servingSettings serving
    running :: ((forall x. Thread x -> IO x) -> IO a) -> Thread a
    running run' = servingHost serving (\_ (Perform performing) -> run' performing)
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
