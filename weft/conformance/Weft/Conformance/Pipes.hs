{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Pipes and FIFOs
--
-- Bytes go through in order, both sides wait for each other, and each learns of the
-- other's end.
module Weft.Conformance.Pipes (pipes) where

import Data.ByteString (ByteString)
import Data.ByteString qualified as ByteString
import Data.ByteString.Char8 qualified as Char8
import Foreign.C.Error
import Test.Tasty
import Weft
import Weft.Buffer
import Weft.Conformance.Check
import Weft.Conformance.Connecting (beside)
import Weft.Conformance.Waiting
import Weft.Conformance.World
import Weft.File (OpenMode (..))
import Weft.Pipe

-- | Pipes and FIFOs.
pipes :: World -> TestTree
pipes world =
  testGroup "pipes" $
    [ conforms world "a million bytes, and the end" (bytes world),
      conforms world "nobody reads any more" unread,
      conforms world "each end is for one direction" directions,
      conforms world "closed while another thread waits, and twice" closed,
      conforms world "read into a buffer, from an offset" into,
      conforms world "as many bytes as it is to hold, and no more" (capacity world)
    ]
      <> [inDirectory world "FIFOs" (fifos make) | Just make <- [worldFifo world]]

bytes :: World -> Thread ()
bytes world = do
  (r, w) <- openPipe
  let size = 1_000_000
      readAll n = if n >= size then pure n else readPipe r 65536 >>= \b -> if ByteString.null b then pure n else readAll (n + ByteString.length b)
  reader <- beside world (readAll 0)
  writePipe w (ByteString.replicate size 7)
  reader ===> size
  writePipe w "in "
  writePipe w "order"
  closePipe w
  readPipe r 4 ===> "in o"
  readPipe r 10 ===> "rder"
  readPipe r 10 ===> ""
  closePipe r

unread :: Thread ()
unread = do
  (r, w) <- openPipe
  closePipe r
  failsWith [ePIPE] (writePipe w "x")
  closePipe w
  -- Also while it waits for room.
  (r', w') <- openPipe
  writer <- spawn (failsWith [ePIPE] (writePipe w' (ByteString.replicate 10_000_000 0)))
  readPipe r' 1 ===> "\0"
  closePipe r'
  writer
  closePipe w'

directions :: Thread ()
directions = do
  (r, w) <- openPipe
  failsWith [eBADF] (readPipe w 1)
  failsWith [eBADF] (writePipe r "x")
  closePipe r >> closePipe w

closed :: Thread ()
closed = do
  (r, w) <- openPipe
  waiting <- spawn (failsWith [eCANCELED, eBADF] (readPipe r 1))
  sleep (milliseconds 1)
  closePipe r
  waiting
  closePipe r
  (r', w') <- openPipe
  failsWith [eBADF] (readPipe r 1)
  closePipe w
  failsWith [eBADF] (writePipe w "x")
  closePipe r' >> closePipe w'

into :: Thread ()
into = do
  (r, w) <- openPipe
  buffer <- liftIO (newBuffer 8)
  writePipe w "abcdefghijk"
  readPipeInto r buffer 0 3 ===> 3
  readPipeInto r buffer 5 100 ===> 3
  readPipeInto r buffer 3 2 ===> 2
  liftIO (copyBuffer buffer 0 8) ===> "abcghdef"
  failsWith [eINVAL] (readPipeInto r buffer 8 1)
  failsWith [eINVAL] (readPipeInto r buffer 0 0)
  -- The rest was not taken, and what was not asked for has not been touched.
  readPipe r 10 ===> "ijk"
  waiting <- spawn (readPipeInto r buffer 7 1)
  yield
  writePipe w "z"
  waiting ===> 1
  liftIO (copyBuffer buffer 0 8) ===> "abcghdez"
  closePipe w
  readPipeInto r buffer 0 8 ===> 0
  closePipe r

capacity :: World -> Thread ()
capacity world = do
  (r, w) <- openPipe
  setPipeCapacity w 4_096 ===> 4_096
  pipeCapacity r ===> 4_096
  -- Rounded up.
  setPipeCapacity r 5_000 ===> 8_192
  pipeCapacity w ===> 8_192
  writer <- beside world (writePipe w (ByteString.replicate 20_000 1))
  counting <- spawn (exactly r 20_000)
  counting ===> 20_000
  writer
  -- The bytes in the pipe stay, and there is a limit on both sides.
  writePipe w (ByteString.replicate 8_192 2)
  failsWith [eBUSY] (setPipeCapacity w 4_096)
  failsWith [eINVAL] (setPipeCapacity w 0)
  failsWith [eINVAL] (setPipeCapacity w (-1))
  failsWith [eINVAL] (setPipeCapacity w 4_294_971_392)
  pipeCapacity w ===> 8_192
  -- A writer that waits for room goes on when there is some.
  waiting <- spawn (writePipe w "more")
  yield
  setPipeCapacity r 65_536 ===> 65_536
  waiting
  exactly r 8_196 ===> 8_196
  closePipe r >> closePipe w
  failsWith [eBADF] (pipeCapacity r)
  failsWith [eBADF] (setPipeCapacity w 4_096)
  where
    exactly pipe n = go 0
      where
        go done
          | done >= n = pure done
          | otherwise = readPipe pipe (n - done) >>= \b -> if ByteString.null b then pure done else go (done + ByteString.length b)

fifos :: (ByteString -> Thread ()) -> ByteString -> Thread ()
fifos make dir = do
  let path = Char8.unpack dir <> "/fifo"
  failsWith [eNOENT] (openFifo path ReadOnly)
  make (Char8.pack path)
  failsWith [eNXIO] (openFifo path WriteOnly)
  r <- openFifo path ReadOnly
  w <- openFifo path WriteOnly
  reader <- spawn (readPipe r 10)
  yield
  writePipe w "through"
  reader ===> "through"
  closePipe w
  readPipe r 10 ===> ""
  closePipe r
