{-# OPTIONS_HADDOCK not-home #-}

-- | Reading, writing and syncing files of simulated disks, with the errors and short transfers of
-- the conditions. The memory of a request is only touched in its completion.
module Weft.Sim.Internal.Disk.Transfer
  ( readFileAt,
    writeFileAt,
    writeBufferAt,
    setFileSize,
    syncFile,
    contentsFrom,
  )
where

import Control.Monad (foldM_, void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Data.ByteString.Internal (ByteString (BS))
import Data.ByteString.Unsafe (unsafeUseAsCStringLen)
import Data.IORef
import Data.Int (Int64)
import Data.Word (Word8)
import Foreign.C.Error
import Foreign.ForeignPtr
import Foreign.ForeignPtr.Unsafe (unsafeForeignPtrToPtr)
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr
import Weft.Internal.Core.SystemCall
import Weft.Internal.Os.Descriptor (descriptorNumber)
import Weft.Sim.Internal.Descriptors
import Weft.Sim.Internal.Disk.Device
import Weft.Sim.Internal.Disk.FileSystem
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

-- | The limit of ext4 with pages of 4,096 bytes.
largestFile :: Int64
largestFile = 16 * 1024 * 1024 * 1024 * 1024

readFileAt :: Disks -> File -> Buffer -> Int -> Int -> Int64 -> Answering Int
readFileAt disks file (Buffer memory room) offset count position = onFile disks diskDelay "read" file act
  where
    from = max 0 (min room offset)
    wanted = max 0 (min (room - from) count)
    act handle disk = do
      directory <- onSystem disk (\fs -> nodeIsDirectory (nodeOf fs (handleInode handle)))
      place <- placeOf handle position
      let refusal
            | not (mayRead (handleMode handle)) = Just eBADF
            | directory = Just eISDIR
            | place < 0 || misaligned handle (memory `plusForeignPtr` from) wanted place = Just eINVAL
            | otherwise = Nothing
      orBroken disks handle fst "a read" refusal $ do
        there <- onSystem disk (subtract place . contentSize . content handle)
        n <- shorten (disksWorld disks) handle shortReads (fromIntegral (max 0 (min (fromIntegral wanted) there)))
        pieces <- onSystem disk (readContent place n . content handle)
        withForeignPtr memory $ \p -> foldM_ copyPiece (p `plusPtr` from) pieces
        moveOn handle position (place + fromIntegral n)
        pure n

copyPiece :: Ptr Word8 -> ByteString -> IO (Ptr Word8)
copyPiece to piece = unsafeUseAsCStringLen piece $ \(from, n) -> (to `plusPtr` n) <$ copyBytes to (castPtr from) n

-- | Writes all of these bytes, or the first of them.
writeFileAt :: Disks -> File -> ByteString -> Int64 -> Answering Int
writeFileAt disks file bytes position = onFile disks diskDelay "write" file $ \handle disk -> writing disks disk handle bytes position

-- | Write the bytes that a part of the buffer has when the write completes.
writeBufferAt :: Disks -> File -> Buffer -> Int -> Int -> Int64 -> Answering Int
writeBufferAt disks file (Buffer memory room) offset count = writeFileAt disks file (BS (memory `plusForeignPtr` from) (max 0 (min (room - from) count)))
  where
    from = max 0 (min room offset)

writing :: Disks -> Disk -> Handle -> ByteString -> Int64 -> IO (Either Errno Int)
writing disks disk handle bytes@(BS memory count) position = do
  before <- onSystem disk (content handle)
  place <- if handleMode handle == Append then pure (contentSize before) else placeOf handle position
  room <- readIORef (diskRoom disk)
  free <- onSystem disk (roomFor room)
  let allowed = fromIntegral (min (fromIntegral count) (largestFile - place)) :: Int
      fitting = fittingPages free place allowed before
      refusal
        | not (mayWrite (handleMode handle)) = Just eBADF
        | position < -1 || place < 0 || misaligned handle memory count place = Just eINVAL
        | count == 0 = Nothing
        | place >= largestFile = Just eFBIG
        | fitting == 0 = Just eNOSPC
        | otherwise = Nothing
  when (refusal == Just eNOSPC) $ noteFile disks handle (\path -> "full: a write to " <> path <> " fails")
  orBroken disks handle snd "a write" refusal $ do
    n <- shorten (disksWorld disks) handle shortWrites fitting
    now <- wallClock disks disk
    let pages = writtenPages place (ByteString.take n bytes) before
        end = place + fromIntegral n
    -- The bytes may belong to a buffer: copy them before anything else runs.
    when (n > 0) . changeSystem disk $ changeData now (writePages pages end) (handleInode handle)
    moveOn handle position end
    pure n

setFileSize :: Disks -> File -> Int64 -> Answering ()
setFileSize disks file size = onFile disks diskDelay "truncate" file act
  where
    act handle disk
      | size < 0 || not (mayWrite (handleMode handle)) = pure (Left eINVAL)
      | size > largestFile = pure (Left eFBIG)
      | otherwise = do
          now <- wallClock disks disk
          Right <$> changeSystem disk (changeData now (resize size) (handleInode handle))

-- | Make content durable, and a new file's name or a directory's names; with the flag, not the
-- modification time. Covers what was done before the call.
syncFile :: Disks -> File -> Bool -> Answering ()
syncFile disks file dataOnly ask k = withHandle disks ask "sync" file $ \handle -> do
  asked <- onSystem (handleDisk handle) (\fs -> nodeOf fs (handleInode handle))
  operation disks ask syncDelay "sync" (Just handle) (failing "sync" Nothing . act handle asked (mark (nodeData asked))) k
  where
    act handle asked upTo disk = do
      broken <- fails disks handle snd "a sync"
      if broken
        then do
          node <- onSystem disk (`nodeOf` handleInode handle)
          (settled, told) <- settleTo (worldRandom (disksWorld disks)) False upTo (nodeData node)
          changeSystem disk (adjustNode (\n -> n {nodeData = settled}) (handleInode handle))
          noteFile disks handle (\path -> "a sync of " <> path <> " has failed: " <> told)
          pure (Left eIO)
        else do
          changeSystem disk $ commitTo (nodeJournal asked) . adjustNode (synced asked upTo) (handleInode handle)
          pure (Right ())
    synced asked upTo node =
      node
        { nodeData = syncTo upTo (nodeData node),
          nodeModifiedOnDisk = if dataOnly then nodeModifiedOnDisk node else nodeModified asked
        }

-- | For sending a file on a socket: at most this number of bytes from an offset. Takes no time.
contentsFrom :: Disks -> File -> Int64 -> Int -> IO (Either Errno ByteString)
contentsFrom disks (File d) position count =
  entryAt (disksHandles disks) d >>= \case
    Nothing -> do
      when (descriptorNumber d < firstDescriptor) (void (refuseReal (disksWorld disks) "send a file" d))
      pure (Left eBADF)
    Just handle -> do
      directory <- onSystem (handleDisk handle) (\fs -> nodeIsDirectory (nodeOf fs (handleInode handle)))
      let refusal
            | not (mayRead (handleMode handle)) = Just eBADF
            | directory || position < 0 = Just eINVAL
            | otherwise = Nothing
      orBroken disks handle fst "a read" refusal (ByteString.concat <$> onSystem (handleDisk handle) (readContent position (max 0 count) . content handle))

content :: Handle -> FileSystem -> Content
content handle fs = seen (nodeData (nodeOf fs (handleInode handle)))

mayRead, mayWrite :: OpenMode -> Bool
mayRead = (`elem` [ReadOnly, ReadWrite, Directory])
mayWrite = (`elem` [WriteOnly, ReadWrite, Append])

-- | Where an operation begins: offset -1 means the file's own position.
placeOf :: Handle -> Int64 -> IO Int64
placeOf handle position = if position == -1 then readIORef (handlePosition handle) else pure position

moveOn :: Handle -> Int64 -> Int64 -> IO ()
moveOn handle position end = when (position == -1) (writeIORef (handlePosition handle) end)

-- | Direct I/O wants memory, offset and length in multiples of the block size.
misaligned :: Handle -> ForeignPtr Word8 -> Int -> Int64 -> Bool
misaligned handle memory count place =
  handleDirect handle && any ((/= 0) . (`mod` pageSize)) [unsafeForeignPtrToPtr memory `minusPtr` nullPtr, count, fromIntegral place]

orBroken :: Disks -> Handle -> ((Double, Double) -> Double) -> String -> Maybe Errno -> IO a -> IO (Either Errno a)
orBroken disks handle rate what refusal act = case refusal of
  Just e -> pure (Left e)
  Nothing -> fails disks handle rate what >>= \broken -> if broken then pure (Left eIO) else Right <$> act

fails :: Disks -> Handle -> ((Double, Double) -> Double) -> String -> IO Bool
fails disks handle rate what = do
  rates <- readIORef (diskErrors (handleDisk handle))
  broken <- chance (worldRandom (disksWorld disks)) (rate rates)
  broken <$ when broken (noteFile disks handle (\path -> what <> " of " <> path <> " fails"))

noteFile :: Disks -> Handle -> (String -> String) -> IO ()
noteFile disks handle text = do
  path <- onSystem (handleDisk handle) (`pathOf` handleInode handle)
  noteDisk disks (handleDisk handle) (text (Char8.unpack path))

-- | Perhaps a part of this number of bytes: at least one byte, or whole blocks for direct I/O.
shorten :: World -> Handle -> (Conditions -> Double) -> Int -> IO Int
shorten world handle rate n
  | n <= unit = pure n
  | otherwise = do
      short <- chance (worldRandom world) (rate (worldConditions world))
      if short then (unit *) . (1 +) <$> below (worldRandom world) (n `div` unit - 1) else pure n
  where
    unit = if handleDirect handle then pageSize else 1
