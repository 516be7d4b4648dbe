{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: the chat server of the tutorial, which stops when it is asked to.
module Tutorial.Shutdown
  ( main,
    serveRoom,
  )
where

import Control.Monad (void)
import System.Posix.Signals (sigINT, sigTERM)
import Tutorial.Chat (Room, closeRoom, newRoom, session)
import Weft
import Weft.Serve
import Weft.Signal
import Weft.Socket

main :: IO ()
main = run . withSignals [sigTERM, sigINT] $ \signals ->
  withSocket (listenTcp (Just "127.0.0.1") "7000" 1024) $ \listener -> do
    room <- newRoom
    serveRoom (void (nextSignal signals)) (seconds 5) listener room (session room)

-- | Serve until the first argument ends; then give the sessions so long to end, too.
serveRoom :: Thread () -> Duration -> Socket -> Room -> (Socket -> Thread ()) -> Thread ()
serveRoom stop grace listener room one = serveOn settings listener (\client _ -> one client)
  where
    settings =
      defaultServeSettings
        { serveUntil = Just (stop >> closeRoom room "The server is going down."),
          serveGrace = grace
        }
