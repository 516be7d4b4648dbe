{-# OPTIONS_HADDOCK not-home #-}

-- | The bytes of a simulated file. Immutable pages of 4,096 bytes; pure. A page that was never
-- written is absent and reads as zeroes. A write copies its bytes, once.
module Weft.Sim.Internal.Disk.Content
  ( Content (..),
    emptyContent,
    pageSize,
    readContent,
    pageAt,
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

-- | A size in bytes, and pages by number. Every page has 'pageSize' bytes. In a content that can
-- be read, the bytes beyond the size are zero and no page begins there.
data Content = Content
  { contentSize :: !Int64,
    contentPages :: !(IntMap ByteString)
  }
  deriving stock (Eq, Show)

emptyContent :: Content
emptyContent = Content 0 IntMap.empty

pageSize :: Int
pageSize = 4096

zeroes :: ByteString
zeroes = ByteString.replicate pageSize 0

pageAt :: Content -> Int -> ByteString
pageAt content n = IntMap.findWithDefault zeroes n (contentPages content)

-- | At most this number of bytes from an offset that is not negative, in pieces that share the
-- pages' memory. None beyond the end.
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

place :: Int64 -> (Int, Int)
place at = (fromIntegral page, fromIntegral start)
  where
    (page, start) = at `divMod` fromIntegral pageSize

-- | The pages that a write of these bytes at an offset changes, in their new state. They share no
-- memory with the bytes, which may belong to a buffer.
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

-- | How many of a number of bytes fit at an offset if there is room for a number of new pages.
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

putPage :: Int -> ByteString -> Content -> Content
putPage n page content = content {contentPages = IntMap.insert n page (contentPages content)}

growTo :: Int64 -> Content -> Content
growTo size content = content {contentSize = max size (contentSize content)}

-- | Cut or extend. Bytes that were cut off are zero when the content grows again.
setSize :: Int64 -> Content -> Content
setSize size content
  | start == 0 = Content size below
  | otherwise = Content size (IntMap.adjust cut page kept)
  where
    (page, start) = place size
    (below, at, _) = IntMap.splitLookup page (contentPages content)
    kept = maybe below (\p -> IntMap.insert page p below) at
    cut p = ByteString.take start p <> ByteString.drop start zeroes
