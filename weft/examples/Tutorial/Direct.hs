{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: the session of the chat server once more, in direct style.
module Tutorial.Direct
  ( main,
    session,
  )
where

import Control.Exception (bracket, finally, handle)
import Control.Monad (void, when)
import Data.ByteString.Char8 (ByteString)
import Data.Text.Encoding (decodeLatin1)
import System.Posix.Signals (sigINT, sigTERM)
import Tutorial.Chat (Member (..), Room (..), announce, join, leave, newRoom, validName)
import Tutorial.Lines (lineReader)
import Tutorial.Shutdown (serveRoom)
import Weft (seconds)
import Weft.Channel (Channel)
import Weft.Channel qualified as Channel
import Weft.Event qualified as Event
import Weft.IO
import Weft.Signal qualified as Signal
import Weft.Socket (Socket)

main :: IO ()
main = run . withSignals [sigTERM, sigINT] $ \signals ->
  withSocket (listenTcp (Just "127.0.0.1") "7000" 1024) $ \listener -> do
    room <- await newRoom
    await $ serveRoom (void (Signal.nextSignal signals)) (seconds 5) listener room (direct . session room)

session :: Room -> Socket -> IO ()
session room client = do
  nextLine <- await <$> await (lineReader 1000 client)
  sendAll client "Your name?\n"
  race (await (Event.wait (roomClosed room))) (timeout (seconds 60) nextLine) >>= \case
    Right (Just (Just name)) | validName name -> do
      label (decodeLatin1 name)
      outgoing <- await (Channel.newChannelNamed (decodeLatin1 name) 64)
      me <- myThreadId
      let enter = await (join room name (Member me outgoing))
          quit joined = when joined (await (leave room name))
      bracket enter quit $ \joined ->
        if joined
          then converse room name client nextLine outgoing
          else sendAll client "That name is taken.\n"
    _ -> sendAll client "Goodbye.\n"

converse :: Room -> ByteString -> Socket -> IO (Maybe ByteString) -> Channel ByteString -> IO ()
converse room name client nextLine outgoing = withScope $ \connection -> do
  _ <- forkDaemonIn connection (untilGone hear `finally` await (Channel.close outgoing))
  deliver
  where
    untilGone = handle (\(_ :: IOError) -> pure ())
    deliver =
      await (Channel.receive outgoing) >>= \case
        Just line -> sendAll client (line <> "\n") >> deliver
        Nothing -> pure ()
    hear =
      timeout (seconds 600) nextLine >>= \case
        Just (Just "/quit") -> pure ()
        Just (Just line) -> await (announce room (name <> ": " <> line)) >> hear
        _ -> pure ()
