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
      conforms world "closed while another thread waits, and twice" closed
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
