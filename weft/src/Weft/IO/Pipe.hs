-- |
-- Pipes in direct style: the operations of "Weft.Pipe" in plain 'IO', each
-- 'await' before the one of the same name, which describes it. "Weft.IO" exports them again.
module Weft.IO.Pipe
  ( openPipe,
    openFifo,
    readPipe,
    readPipeInto,
    writePipe,
    pipeCapacity,
    setPipeCapacity,
    closePipe,
  )
where

import Data.ByteString (ByteString)
import Weft.Buffer (Buffer)
import Weft.File (OpenMode)
import Weft.Internal.Core.Direct
import Weft.Pipe (Pipe)
import Weft.Pipe qualified as Pipe

-- | See 'Weft.Pipe.openPipe'.
openPipe :: IO (Pipe, Pipe)
openPipe = await Pipe.openPipe

-- | See 'Weft.Pipe.openFifo'.
openFifo :: FilePath -> OpenMode -> IO Pipe
openFifo path mode = await (Pipe.openFifo path mode)

-- | See 'Weft.Pipe.readPipe'.
readPipe :: Pipe -> Int -> IO ByteString
readPipe pipe count = await (Pipe.readPipe pipe count)

-- | See 'Weft.Pipe.readPipeInto'.
readPipeInto :: Pipe -> Buffer -> Int -> Int -> IO Int
readPipeInto pipe buffer offset count = await (Pipe.readPipeInto pipe buffer offset count)

-- | See 'Weft.Pipe.writePipe'.
writePipe :: Pipe -> ByteString -> IO ()
writePipe pipe bytes = await (Pipe.writePipe pipe bytes)

-- | See 'Weft.Pipe.pipeCapacity'.
pipeCapacity :: Pipe -> IO Int
pipeCapacity = await . Pipe.pipeCapacity

-- | See 'Weft.Pipe.setPipeCapacity'.
setPipeCapacity :: Pipe -> Int -> IO Int
setPipeCapacity pipe count = await (Pipe.setPipeCapacity pipe count)

-- | See 'Weft.Pipe.closePipe'.
closePipe :: Pipe -> IO ()
closePipe = await . Pipe.closePipe
