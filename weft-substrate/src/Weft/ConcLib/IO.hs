-- |
-- Description : Sockets, FIFOs and files for the threads of both libraries
--
-- Calls on descriptors of which only the thread waits that makes them. Descriptors come from
-- elsewhere (the packages @unix@ and @network@) and are adopted ('adopt').
--
-- For threads of "Weft.ConcLib.OS" a call blocks its OS thread; an exception interrupts it as GHC's
-- @interruptible@ foreign calls are interrupted. For those of "Weft.ConcLib.MP" epoll says when to try again,
-- and the kernel reads and writes files asynchronously that were opened past the page cache.
-- 'Weft.ConcLib.MP.settingCollecting' chooses what collects these events. (Li 2008, sections 5.2.1 and 5.2.2.)
module Weft.ConcLib.IO (adopt, closeFd, readFd, writeFd, accept, connect, readAt, writeAt) where

import Weft.ConcLib.Internal.Events
