-- |
-- Memory to receive into, without a copy for each system call.
--
-- Ownership: between a system call that names it and the answer the kernel owns the named part, which
-- no thread may read or write. At all other times it belongs to the thread that made it or was given it.
--
-- A buffer changes, and a 'ByteString' does not: 'copyBuffer' makes one of what is in it.
module Weft.Buffer (Buffer, newBuffer, newAlignedBuffer, bufferSize, withBuffer, copyBuffer) where

import Weft.Internal.Core.Buffer
