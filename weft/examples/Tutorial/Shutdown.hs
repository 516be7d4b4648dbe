{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: the chat server of the tutorial, which stops when it is asked to.
module Tutorial.Shutdown
  ( main,
    serveUntil,
  )
where

import Control.Monad (void, when)
import Data.Maybe (isNothing)
import System.Posix.Signals (sigINT, sigTERM)
import Tutorial.Chat (Room, closeRoom, newRoom, session)
import Tutorial.Clients (eachClient)
import Weft
import Weft.Concurrently
import Weft.Scope
import Weft.Signal
import Weft.Socket
import Weft.Timeout

main :: IO ()
main = run . withSignals [sigTERM, sigINT] $ \signals ->
  withSocket (listenTcp (Just "127.0.0.1") "7000" 1024) $ \listener -> do
    room <- newRoom
    serveUntil (void (nextSignal signals)) (seconds 5) listener room (session room)

-- | Serve until the first argument ends; then give the sessions so long to end, too.
serveUntil :: Thread () -> Duration -> Socket -> Room -> (Socket -> Thread ()) -> Thread ()
serveUntil stop grace listener room one = withScope $ \clients -> do
  race_ stop (eachClient clients listener one)
  closeSocket listener
  closeRoom room "The server is going down."
  ended <- timeout grace (awaitAll clients)
  when (isNothing ended) $ cancelScope clients
