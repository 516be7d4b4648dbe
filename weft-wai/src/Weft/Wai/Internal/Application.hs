{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Converts a request, runs the application, sends its response, and answers its failures.
module Weft.Wai.Internal.Application (newServerFor) where

import Control.Exception (Exception (..), SomeAsyncException, SomeException, throwIO)
import Control.Exception qualified as E
import Control.Monad (unless, void)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.Foldable (for_)
import Data.IORef
import Network.Wai (mapResponseHeaders, responseStatus)
import Network.Wai qualified as Wai (Application)
import Network.Wai.Internal qualified as Wai
import System.Timeout (Timeout)
import Weft hiding (Settings, defaultSettings)
import Weft.Http.Request
import Weft.Http.Server hiding (responseStatus)
import Weft.Http.Server.Types (Tick (..), knownLength, readClock)
import Weft.Outside (Runner)
import Weft.Wai.Internal.Files
import Weft.Wai.Internal.Perform
import Weft.Wai.Internal.Request
import Weft.Wai.Internal.Response
import Weft.Wai.Internal.Settings

-- | The state shared by all requests of an application.
data Serving = Serving
  { servingSettings :: !Settings,
    servingMaking :: !Making,
    servingChooser :: !Chooser,
    servingFiles :: !Files,
    servingClock :: !Clock
  }

data Exchange = Exchange
  { exchangeServing :: !Serving,
    exchangeRequest :: !Request,
    exchangeAsked :: !Wai.Request,
    exchangeConstants :: !Constants,
    exchangePlace :: !Place,
    exchangeWatch :: !Watch,
    exchangeProgress :: {-# UNPACK #-} !(IORef Progress),
    -- | Sends a response, or returns the operation that does.
    exchangeSend :: Response -> IO (Maybe (Thread ()))
  }

data Progress = Unsent | UnderWay | Finished
  deriving stock (Eq)

-- | A server for this application. The runner performs operations where no thread can be suspended.
newServerFor :: Settings -> Runner -> Files -> Wai.Application -> Thread Server
newServerFor settings runner files application = do
  chooser <- newChooser (settingsStyle settings)
  let host :: Host
      host = hostOf chooser runner
      making = Making (settingsAltSvc settings) (settingsMaxBuilderResponseBufferSize settings) host
  newServerPlain (serverSettingsOf settings) $ \clock ->
    let !serving = Serving settings making chooser files clock
     in \h -> do
          constants <- newConstants making
          let !said = saidBy (settingsNoParsePath settings) h
          pure (PlainAnswer host (answering serving application said constants))

-- | Answer a request; the last function sends a response, or returns the operation that does. Out of
-- line, as below: inlined, it would unpack and rebuild the records for each request.
answering :: Serving -> Wai.Application -> Wai.Request -> Constants -> Place -> Request -> (Response -> IO (Maybe (Thread ()))) -> IO ()
answering serving application said constants place request send = do
  receive <- bodyOf (servingSettings serving) request place
  let !asked = askedBy (requestClient request) receive said
  progress <- newIORef Unsent
  watch <- beginWatch (servingChooser serving)
  let !exchange = Exchange serving request asked constants place watch progress send
  void (application asked (answer exchange)) `E.catch` failed exchange
{-# OPAQUE answering #-}

answer :: Exchange -> Wai.Response -> IO Wai.ResponseReceived
answer exchange response = do
  before <- readIORef progress
  unless (before == Unsent) $ throwIO (userError "an application has answered a request twice")
  -- Raises the faults of a response while it can be replaced.
  prepared <- prepare (servingMaking serving) (exchangeConstants exchange) (requestMethod request) response
  writeIORef progress UnderWay
  endWatch (servingChooser serving) (placeWay place) (exchangeWatch exchange)
  case prepared of
    Ready ready -> send ready
    File status fields path part -> do
      tick <- readClock (servingClock serving)
      sendingFile (servingFiles serving) (performIn place) (tickSecond tick) request status fields path part send
  writeIORef progress Finished
  for_ (settingsLogger (servingSettings serving)) $ \logger ->
    logger (exchangeAsked exchange) (responseStatus response) $ case prepared of
      Ready ready -> toInteger <$> knownLength (responseBody ready)
      File _ _ _ part -> Wai.filePartByteCount <$> part
  pure Wai.ResponseReceived
  where
    send ready = exchangeSend exchange ready >>= mapM_ (performIn place)
    Exchange {exchangeServing = serving, exchangeRequest = request, exchangePlace = place, exchangeProgress = progress} = exchange
{-# OPAQUE answer #-}

failed :: Exchange -> SomeException -> IO ()
failed exchange e
  | Just (_ :: Timeout) <- fromException e,
    placeWay (exchangePlace exchange) == OnWorker = do
      -- Not its own time limit, which would have caught it.
      misdirected (servingChooser serving)
      failure (toException Misdirected)
  | Just (_ :: SomeAsyncException) <- fromException e = throwIO e
  | otherwise = failure e
  where
    serving = exchangeServing exchange
    settings = servingSettings serving
    failure e' = do
      settingsOnException settings (Just (exchangeAsked exchange)) e'
      readIORef (exchangeProgress exchange) >>= \case
        Finished -> pure ()
        -- Ends the connection; an 'IOError' is not reported again.
        UnderWay -> throwIO (userError "a response was not completed")
        Unsent
          | Just BodyCutOff <- fromException e' -> throwIO e'
          | otherwise -> void (answer exchange (afterFailure e' (settingsOnExceptionResponse settings e')))
    -- The start of the next request is unknown after a failed body.
    afterFailure e' response = case fromException e' of
      Just (_ :: BodyError) -> mapResponseHeaders (("Connection", "close") :) response
      Nothing -> response
{-# OPAQUE failed #-}

-- | A request was hit by another's time limit ('System.Timeout.timeout').
data Misdirected = Misdirected

instance Show Misdirected where
  show Misdirected =
    "this request was ended by the time limit (System.Timeout.timeout) of another, which waited for its client; \
    \from now on applications run on threads of their own, if that is not ruled out by setApplicationStyle Direct"

instance Exception Misdirected

-- Note [Small bodies come first]
-- ~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
-- An application may read the body inside a lazy value (servant's request bodies), where it cannot be
-- suspended (Note [Where nothing can be suspended] in "Weft.Wai.Internal.Perform"). So a small body of
-- known length is received before. A client that waits for 100 gets it only when the application asks.

-- | The source of a body's pieces; receives a small body at once.
bodyOf :: Settings -> Request -> Place -> IO (IO ByteString)
bodyOf settings request place = case requestFraming request of
  NoBody -> pure (pure B.empty)
  FixedBody n
    | placeWay place == OnWorker,
      n <= fromIntegral (settingsPrefetchBody settings),
      requestExpectation request == NoExpectation ->
        performIn place (receiving []) >>= \case
          -- For the application, which may handle it.
          Left e -> pure (throwIO e)
          Right pieces -> do
            left <- newIORef pieces
            pure . atomicModifyIORef' left $ \case
              [] -> ([], B.empty)
              piece : rest -> (rest, piece)
  _ -> pure (performIn place (receiveBody request))
  where
    receiving pieces =
      try @_ @BodyError (receiveBody request) >>= \case
        Left e -> pure (Left e)
        Right piece
          | B.null piece -> pure (Right (reverse pieces))
          | otherwise -> receiving (piece : pieces)
