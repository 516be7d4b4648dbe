-- Without full laziness: decision 120.
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The life of one connection: its own thread puts layers around the socket, serves, rests while no
-- request comes, and closes the socket at the end.
module Weft.Http.Server.Attending (Reception (..), attendTo) where

import Control.Exception (IOException, SomeAsyncException, SomeException, fromException)
import Control.Monad (unless, when)
import Data.Maybe (isJust, isNothing)
import Weft
import Weft.Http.Internal.Address (peerAddress)
import Weft.Http.Server.Connection
import Weft.Http.Server.Input
import Weft.Http.Server.Outgoing
import Weft.Http.Server.Phase
import Weft.Http.Server.Registry
import Weft.Http.Server.State
import Weft.Http.Server.Wire
import Weft.Internal.Os.Report (exceptionText)
import Weft.Mask (interruptible)
import Weft.Socket (SockAddr, awaitReadable, closeSocket)

-- | The server and the address of a listening socket, shared by the connections that it has accepted.
data Reception = Reception
  { receptionContext :: !Context,
    receptionLocal :: !SockAddr
  }

data Next
  = -- | A client has come back.
    Wakes
  | -- | It waits for one, without a buffer.
    Rests
  | Ends
  | -- | It ends, and its thread with this exception.
    Fails SomeException

-- | Starts masked. While the connection rests nothing is on the stack but what closes it: Note [A
-- connection at rest] in "Weft.Http.Server.State".
attendTo :: Reception -> Member -> Thread ()
attendTo reception m = awake reception m (session (receptionContext reception))

awake :: Reception -> Member -> (Connection -> Thread ()) -> Thread ()
awake reception m body =
  ((Ends <$ interruptible (maybe id ($ client) (serverAround settings) (body c))) `catch` judged context) >>= goOn reception m
  where
    context = receptionContext reception
    settings = serverSettings (contextServer context)
    client = ClientInfo (peerAddress (memberPeer m)) (receptionLocal reception) Nothing
    c = Connection m Nothing Nothing client

resting :: Reception -> Member -> Thread ()
resting reception m = do
  keeps <- liftIO (lieDown m >> isKeeping (contextServer context))
  if not keeps
    then goOn reception m Ends
    else ((Wakes <$ awaitReadable (memberSocket m)) `catch` judged context) >>= goOn reception m
  where
    context = receptionContext reception

goOn :: Reception -> Member -> Next -> Thread ()
goOn reception m = \case
  Wakes -> awake reception m (\c -> receiving context c NoInput)
  Rests -> resting reception m
  Ends -> close
  Fails e -> close >> throwM e
  where
    context = receptionContext reception
    server = contextServer context
    close = do
      left <- leaving
      liftIO (retire m)
      unless left (closeSocket (memberSocket m)) `finally` liftIO (unregister server m)
    -- Has another process the connection now?
    leaving = do
      rests <- liftIO (isAtRest m)
      liftIO (takerOf server) >>= \case
        Just taker | rests -> taker (memberSocket m) `catch` \(_ :: IOException) -> pure False
        _ -> pure False

-- | The next step of a connection whose thread has raised this.
judged :: Context -> SomeException -> Thread Next
judged context e
  | Just (Interruption reason _) <- fromException e = pure (if reason == BufferUnused && isBare (serverSettings (contextServer context)) then Rests else Ends)
  -- A client that goes away is no news.
  | Just (_ :: IOException) <- fromException e = pure Ends
  | Just (_ :: BodyError) <- fromException e = pure Ends
  | Just (Aborted _ _) <- fromException e = pure Ends
  | Just (_ :: SomeAsyncException) <- fromException e = pure (Fails e)
  | otherwise = Ends <$ report context ("a connection failed: " <> exceptionText e)

-- | Serve until the end; with nothing around the session, until its wait is interrupted.
session :: Context -> Connection -> Thread ()
session context plainly
  | isBare settings = begin plainly
  | otherwise = do
      -- The client's identity comes first, and then whether it may have one more connection.
      known <- layered context (maybe [] pure (serverProxy settings)) plainly
      bracket (liftIO (admit server (clientAddress (connectionClient known)))) (mapM_ liftIO) $ \admitted -> do
        c <- layered context (serverLayers settings) known
        if isJust admitted
          then serving context c (begin c)
          else do
            liftIO (observe server ConnectionRefused)
            refuse context c serviceUnavailable503 "There are too many connections from your address."
  where
    server = contextServer context
    settings = serverSettings server
    begin = beginning context

-- | Is there nothing to go back to from a session: no layers, no action around it, no count of connections?
isBare :: ServerSettings -> Bool
isBare settings =
  not (hasLayers settings)
    && isNothing (serverAround settings)
    && serverMaxPerPeer settings <= 0

layered :: Context -> [Layer] -> Connection -> Thread Connection
layered _ [] c = pure c
layered context (layer : others) c = do
  (transport, client) <- layer (connectionSocket c) (transportOf c) (connectionClient c) `catch` failed
  layered context others c {connectionTransport = Just transport, connectionClient = client}
  where
    failed e
      | Just (_ :: SomeAsyncException) <- fromException e = throwM e
      | otherwise = do
          liftIO (observe (contextServer context) LayerFailed)
          throwM (Aborted ("a layer failed: " <> exceptionText e) (Just e))

-- | Serve with something around the session, which stays there, until the wait for a request is
-- interrupted; then wait without a buffer (Note [Deadlines] in "Weft.Http.Server.Phase"). That wait has
-- neither input nor output, so nothing is lost.
serving :: Context -> Connection -> Thread () -> Thread ()
serving context c body = do
  rests <- (False <$ body) `catch` asked
  if rests
    then waiting
    else do
      announce c
      -- What is around the session has time of its own. One that is to be handed over stays as it is.
      liftIO $ do
        leaves <- isJust <$> takerOf server
        still <- isAtRest (connectionMember c)
        unless (leaves && still) (enter server c Finishing)
  where
    server = contextServer context
    waiting = do
      keeps <- liftIO (lieDown (connectionMember c) >> isKeeping server)
      when keeps $ do
        -- Bytes that a layer had received when it was interrupted do not make the socket readable again.
        pending <- maybe (pure False) (liftIO . transportPending) (connectionTransport c)
        unless pending $ awaitReadable (connectionSocket c)
        serving context c (receiving context c NoInput)
    asked e@(Interruption reason _) = if reason == BufferUnused then pure True else throwM e
