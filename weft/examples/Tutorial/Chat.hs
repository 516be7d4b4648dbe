{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: the chat server of the tutorial.
module Tutorial.Chat
  ( main,

    -- * The room
    Room (..),
    newRoom,
    Member (..),
    join,
    leave,
    announce,
    closeRoom,

    -- * A client
    session,
    validName,
  )
where

import Control.Monad (forM_, unless, when)
import Data.ByteString.Char8 (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.Char (isAlphaNum)
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Text.Encoding (decodeLatin1)
import Tutorial.Lines (lineReader)
import Weft
import Weft.Channel (Channel)
import Weft.Channel qualified as Channel
import Weft.Concurrently
import Weft.Event
import Weft.STM
import Weft.Scope
import Weft.Serve
import Weft.Socket
import Weft.Timeout

data Room = Room
  { -- | Who is here; 'Nothing' when the room is closed.
    roomMembers :: TVar (Maybe (Map ByteString Member)),
    -- | Set when the room is closed, for those who wait at the door.
    roomClosed :: Event
  }

data Member = Member
  { -- | The thread of its session.
    memberThread :: ThreadId,
    -- | Lines for it that are not sent yet.
    memberLines :: Channel ByteString
  }

newRoom :: Thread Room
newRoom = Room <$> liftIO (newTVarIO (Just Map.empty)) <*> newEvent

-- | False if the name is taken, or the room is closed.
join :: Room -> ByteString -> Member -> Thread Bool
join room name member = do
  joined <-
    atomically $
      readTVar (roomMembers room) >>= \case
        Just members | Map.notMember name members -> do
          writeTVar (roomMembers room) (Just (Map.insert name member members))
          pure True
        _ -> pure False
  when joined $ announce room (name <> " is here")
  pure joined

leave :: Room -> ByteString -> Thread ()
leave room name = do
  atomically $ modifyTVar' (roomMembers room) (fmap (Map.delete name))
  announce room (name <> " has left")

-- | A line for everybody. Never waits: a member that is too slow is thrown out.
announce :: Room -> ByteString -> Thread ()
announce room line = do
  members <- liftIO (readTVarIO (roomMembers room))
  forM_ (concatMap Map.elems members) $ \member -> do
    inTime <- offer (memberLines member) line
    unless inTime $ cancel (memberThread member)

-- | False if there is no room for the line. One who is leaving has closed the channel
-- and misses nothing.
offer :: Channel ByteString -> ByteString -> Thread Bool
offer channel line =
  Channel.trySend channel line `catch` \(_ :: Channel.ChannelClosed) -> pure True

-- | Tell everybody, let nobody in any more, and end all sessions when what was said
-- has been sent.
closeRoom :: Room -> ByteString -> Thread ()
closeRoom room farewell = do
  announce room farewell
  members <- atomically $ swapTVar (roomMembers room) Nothing
  forM_ (concatMap Map.elems members) $ Channel.close . memberLines
  set (roomClosed room)

-- | One client: ask for a name, be in the room, leave it.
session :: Room -> Socket -> Thread ()
session room client = do
  nextLine <- lineReader 1000 client
  sendAll client "Your name?\n"
  race (wait (roomClosed room)) (timeout (seconds 60) nextLine) >>= \case
    Right (Just (Just name)) | validName name -> do
      label (decodeLatin1 name)
      outgoing <- Channel.newChannelNamed (decodeLatin1 name) 64
      me <- myThreadId
      bracket (join room name (Member me outgoing)) (\joined -> when joined (leave room name)) $ \joined ->
        if joined
          then converse room name client nextLine outgoing
          else sendAll client "That name is taken.\n"
    _ -> sendAll client "Goodbye.\n"

validName :: ByteString -> Bool
validName name = not (Char8.null name) && Char8.length name <= 20 && Char8.all isAlphaNum name

-- | Send what is for the client, while a daemon listens to what it says.
converse :: Room -> ByteString -> Socket -> Thread (Maybe ByteString) -> Channel ByteString -> Thread ()
converse room name client nextLine outgoing = withScope $ \connection -> do
  _ <- forkDaemonIn connection (untilGone hear `finally` Channel.close outgoing)
  deliver
  where
    untilGone = handle (\(_ :: IOError) -> pure ())
    deliver =
      Channel.receive outgoing >>= \case
        Just line -> sendAll client (line <> "\n") >> deliver
        Nothing -> pure ()
    hear =
      timeout (seconds 600) nextLine >>= \case
        Just (Just "/quit") -> pure ()
        Just (Just line) -> announce room (name <> ": " <> line) >> hear
        _ -> pure ()

main :: IO ()
main = run $ do
  room <- newRoom
  serveTcp defaultServeSettings (Just "127.0.0.1") "7000" (\client _ -> session room client)
