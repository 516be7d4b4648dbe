{-# LANGUAGE OverloadedStrings #-}

-- |
-- Description : Connections and pipes within one machine
module Test.Network.Local (local) where

import Control.Monad (forM, replicateM, replicateM_, unless)
import Data.ByteString qualified as ByteString
import Data.Maybe (isNothing)
import Foreign.C.Error
import Test.Network.Rig
import Test.Tasty
import Test.Tasty.HUnit
import Weft
import Weft.Internal.Core.SystemCall qualified as Call
import Weft.Pipe
import Weft.Sim.Internal.Conditions
import Weft.Socket
import Weft.Time

local :: [TestTree]
local =
  [ testCase "Unix domain: within a machine, by path" unixDomain,
    testCase "Unix domain: a full backlog makes connect wait" unixBacklog,
    testCase "pipes" pipes,
    testCase "pipes: small writes stay together" atomicWrites,
    testCase "who stood behind one that gives up is served" giveUp
  ]

unixDomain :: Assertion
unixDomain = inCalm $ \rig -> do
  l <- openSocket AF_UNIX Stream
  failsWith [eINVAL] (listen l 5)
  bind l (SockAddrUnix "/s")
  listen l 5
  other <- openSocket AF_UNIX Stream
  failsWith [eADDRINUSE] (bind other (SockAddrUnix "/s"))
  failsWith [eNOENT] (connect other (SockAddrUnix "/nobody"))
  failsWith [eNOTCONN] (send other "x")
  failsWith [eINVAL] (receive other 1)
  a <- machine rig "a"
  residingAt a (withSocket (openSocket AF_UNIX Stream) (\s -> failsWith [eNOENT] (connect s (SockAddrUnix "/s"))))
  connect other (SockAddrUnix "/s")
  (s, _) <- accept l
  peerAddress other >>= (`is` SockAddrUnix "/s")
  sendAll other "there" >> receiveExactly s 5 >>= (`is` "there")
  sendAll s "back" >> receiveExactly other 4 >>= (`is` "back")
  closeSocket s
  receive other 1 >>= (`is` "")
  failsWith [ePIPE] (sendAll other "x")
  closeSocket l
  again <- openSocket AF_UNIX Stream
  failsWith [eCONNREFUSED] (connect again (SockAddrUnix "/s"))
  mapM_ closeSocket [other, again]

unixBacklog :: Assertion
unixBacklog = inCalm $ \_ -> do
  l <- openSocket AF_UNIX Stream
  bind l (SockAddrUnix "/s")
  listen l 1
  socks <- replicateM 3 (openSocket AF_UNIX Stream)
  waits <- forM socks $ \s -> spawn (connect s (SockAddrUnix "/s")) <* yield
  fourth <- openSocket AF_UNIX Stream
  failsWith [eTIMEDOUT] (connectBefore (milliseconds 5) fourth (SockAddrUnix "/s"))
  fifth <- openSocket AF_UNIX Stream
  closing <- spawn (failsWith [eCANCELED] (connect fifth (SockAddrUnix "/s")))
  pause 1
  closeSocket fifth
  closing
  accepted <- replicateM 3 (fst <$> accept l)
  sequence_ waits
  acceptBefore (milliseconds 1) l >>= holds "nobody else came" . isNothing
  mapM_ closeSocket (l : fourth : socks <> accepted)

pipes :: Assertion
pipes = inCalm $ \_ -> do
  (r, w) <- openPipe
  writer <- spawn (writePipe w (patternBytes 0 300_000) >> closePipe w)
  let readAll = do
        bytes <- readPipe r 7_000
        if ByteString.null bytes then pure [] else (bytes :) <$> readAll
  got <- ByteString.concat <$> readAll
  writer
  holds "the pipe's bytes" (got == patternBytes 0 300_000)
  failsWith [eINVAL] (readPipe r 0)
  failsWith [eBADF] (writePipe r "x")
  closePipe r
  (r', w') <- openPipe
  failsWith [eBADF] (readPipe w' 1)
  stuck <- spawn (failsWith [ePIPE] (writePipe w' (ByteString.replicate 100_000 0)))
  pause 1
  closePipe r'
  stuck
  closePipe w'
  failsWith [eNOENT] (openFifo "/fifo" Call.ReadOnly)

atomicWrites :: Assertion
atomicWrites = do
  _ <- inWorld rough 5 $ \_ -> do
    (r, w) <- openPipe
    writers <- forM [1 .. 8] $ \i -> spawn (replicateM_ 40 (writePipe w (ByteString.replicate 3_000 i)))
    let blocks n = unless (n == (0 :: Int)) $ do
          block <- exactly 3_000
          holds "one writer's bytes" (ByteString.all (== ByteString.head block) block)
          blocks (n - 1)
        exactly n
          | n == 0 = pure ""
          | otherwise = readPipe r n >>= \b -> (b <>) <$> exactly (n - ByteString.length b)
    blocks 320
    sequence_ writers
    mapM_ closePipe [r, w]
  pure ()

giveUp :: Assertion
giveUp = inCalm $ \_ -> do
  (r, w) <- openPipe
  writePipe w (ByteString.replicate 65_000 0)
  large <- fork (writePipe w (ByteString.replicate 4_000 1))
  yield
  small <- spawn (writePipe w (ByteString.replicate 100 2) >> now)
  pause 1
  cancel large
  t <- now
  t' <- small
  since t t' `is` milliseconds 0
  mapM_ closePipe [r, w]
