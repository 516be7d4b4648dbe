-- |
-- Description : The bytes of a simulated file
-- Stability   : not home
--
-- A file's content as immutable pages of 4,096 bytes; pure. A page that was never written
-- is not there and reads as zeroes. A write copies what it is given, once.
module Weft.Sim.Internal.Disk.Content
  ( Content (..),
    emptyContent,
    pageSize,

    -- * Reading
    readContent,
    pageAt,

    -- * Writing
    writtenPages,
    fittingPages,
    putPage,
    setSize,
    growTo,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.Int (Int64)
import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap

-- | A size in bytes, and pages by number. Every page has 'pageSize' bytes. Of a content that
-- can be read, those beyond the size are zero and no page begins there.
data Content = Content
  { contentSize :: !Int64,
    contentPages :: !(IntMap ByteString)
  }
  deriving stock (Eq, Show)

-- | No bytes.
emptyContent :: Content
emptyContent = Content 0 IntMap.empty

-- | Bytes of a page.
pageSize :: Int
pageSize = 4096

zeroes :: ByteString
zeroes = ByteString.replicate pageSize 0
{-# NOINLINE zeroes #-}

-- | The page of this number.
pageAt :: Content -> Int -> ByteString
pageAt content n = IntMap.findWithDefault zeroes n (contentPages content)

-- | At most so many bytes from an offset that is not negative, in pieces that share the
-- memory of the pages. None beyond the end.
readContent :: Int64 -> Int -> Content -> [ByteString]
readContent from count content = go from (min (fromIntegral count) (contentSize content - from))
  where
    go at left
      | left <= 0 = []
      | otherwise =
          let (page, start) = place at
              piece = ByteString.take (fromIntegral (min left (fromIntegral pageSize))) (ByteString.drop start (pageAt content page))
              n = fromIntegral (ByteString.length piece)
           in piece : go (at + n) (left - n)

-- | The page and the place in it of an offset.
place :: Int64 -> (Int, Int)
place at = (fromIntegral page, fromIntegral start)
  where
    (page, start) = at `divMod` fromIntegral pageSize

-- | The pages that these bytes change when they are written at an offset, as they are
-- afterwards. They share no memory with the bytes, which may be a buffer's.
writtenPages :: Int64 -> ByteString -> Content -> [(Int, ByteString)]
writtenPages from bytes content
  | ByteString.null bytes = []
  | otherwise =
      let (page, start) = place from
          (here, rest) = ByteString.splitAt (pageSize - start) bytes
          old = pageAt content page
          !new
            | ByteString.length here == pageSize = ByteString.copy here
            | otherwise = ByteString.concat [ByteString.take start old, here, ByteString.drop (start + ByteString.length here) old]
       in (page, new) : writtenPages (from + fromIntegral (ByteString.length here)) rest content

-- | How many of so many bytes can be written at an offset when at most so many pages that
-- are not there may become so.
fittingPages :: Int -> Int64 -> Int -> Content -> Int
fittingPages room from count content = go room from
  where
    end = from + fromIntegral count
    go free at
      | at >= end = count
      | IntMap.member page (contentPages content) = go free next
      | free <= 0 = fromIntegral (at - from)
      | otherwise = go (free - 1) next
      where
        (page, start) = place at
        next = at + fromIntegral (pageSize - start)

-- | Replace a page; the size stays.
putPage :: Int -> ByteString -> Content -> Content
putPage n page content = content {contentPages = IntMap.insert n page (contentPages content)}

-- | At least so many bytes.
growTo :: Int64 -> Content -> Content
growTo size content = content {contentSize = max size (contentSize content)}

-- | Cut or extend; what was cut off is zero when it comes back.
setSize :: Int64 -> Content -> Content
setSize size content
  | start == 0 = Content size below
  | otherwise = Content size (IntMap.adjust cut page kept)
  where
    (page, start) = place size
    (below, at, _) = IntMap.splitLookup page (contentPages content)
    kept = maybe below (\p -> IntMap.insert page p below) at
    cut p = ByteString.take start p <> ByteString.drop start zeroes
