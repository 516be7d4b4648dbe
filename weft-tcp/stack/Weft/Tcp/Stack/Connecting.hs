{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : A stack's connections to others
--
-- An attempt ("Weft.Tcp.Stack.Ask"), made in the turn of the socket's shard.
module Weft.Tcp.Stack.Connecting (connectSock) where

import Control.Concurrent.MVar (withMVar)
import Data.ByteString qualified as B
import Data.List (find)
import Data.Maybe (isJust)
import Foreign.C.Error
import Network.Socket (SockAddr)
import Weft.Internal.Core.Home (Home)
import Weft.Internal.Core.SystemCall (Socket)
import Weft.Tcp.Connection
import Weft.Tcp.Sequence (Seq (..), before)
import Weft.Tcp.Stack.Ask
import Weft.Tcp.Stack.Datagrams
import Weft.Tcp.Stack.Engine
import Weft.Tcp.Stack.Flow
import Weft.Tcp.Stack.Names
import Weft.Tcp.Stack.Ports
import Weft.Tcp.Stack.Shards
import Weft.Tcp.Stack.State
import Weft.Tcp.Stack.Streams
import Weft.Tcp.Stack.TimeWait

-- | Connect it. Asked again while the connection comes about, also after a cancellation.
connectSock :: Stack -> Socket -> SockAddr -> Maybe Instant -> Maybe Home -> Instant -> IO (Verdict ())
connectSock st s address limit here now = onSock st s $ \sock -> case sockRole sock of
  Listening _ -> pure (Refuse eISCONN)
  Connected c -> do
    b <- readBody c
    case tcbState (bodyTcb b) of
      _ | bodyTold b -> pure (Refuse eISCONN)
      SynSent -> pure (Again (waitToWrite c) limit)
      SynReceived -> pure (Again (waitToWrite c) limit)
      Closed -> do
        unconnected sock (connLocalPort c) >>= become st sock
        pure (Refuse (maybe eCONNABORTED failureErrno (bodyFailure b)))
      _ -> Answer () <$ writeBody c b {bodyTold = True}
  Bound a port -> begin sock a (Just port)
  Fresh -> begin sock (anyOf (sockFamily sock)) Nothing
  Datagrams ref -> connectDatagrams st sock ref address
  where
    -- Did it have its port before? Then it still has, and gives it back when it is closed.
    unconnected sock port = do
      bindings <- bindingsAt st (fromIntegral port)
      pure (maybe Fresh (\mine -> Bound (bindingAddress mine) port) (find ((== sockNumber sock) . bindingSock) bindings))
    begin sock from port = case takenBy (sockFamily sock) address of
      Nothing -> pure (Refuse eAFNOSUPPORT)
      Just (_, 0) -> pure (Refuse eADDRNOTAVAIL)
      Just (given, peerPort) -> do
        let peer = if isUnspecified given then loopbackLike given else given
        route <- routeTo st from peer
        case route of
          Left e -> pure (Refuse e)
          Right a -> do
            chosen <- case port of
              Just p -> pure (Just p)
              -- One with which the flow is this shard's, as in Seastar; or any. One that was in use a second ago will do.
              Nothing -> freePort st (isFree True a peer peerPort) >>= maybe (freePort st (isFree False a peer peerPort)) (pure . Just)
            case chosen of
              Nothing -> pure (Refuse eADDRNOTAVAIL)
              Just p -> do
                let flow = Flow a p peer peerPort
                (iss, offset) <- freshNumbers st flow now
                settings <- settingsFor st (sockOptions sock) peer
                made <- openingAlone $ do
                  old <- replaceable st now flow
                  taken <- if isJust old then pure False else isTaken st flow
                  if taken
                    then pure Nothing
                    else do
                      mapM_ (endWait st . fst) old
                      let first = activeOpen settings (maybe iss ((iss `orLater`) . snd) old) offset now
                      Just . (,first) <$> newConn st flow first Owned (sockOptions sock)
                case made of
                  Nothing -> pure (Refuse eADDRINUSE)
                  Just (c, first) -> do
                    become st sock (Connected c)
                    openingStep st here now c (Seq 0) B.empty first
                    pure (Again (waitToWrite c) limit)
    isFree owned a peer peerPort p = do
      let flow = Flow a p peer peerPort
      owner <- ownerOf st flow
      if owned && owner /= stackShard st
        then pure False
        else do
          bound <- bindingsAt st (fromIntegral p)
          used <- isTaken st flow
          old <- if used then replaceable st now flow else pure Nothing
          pure (null bound && (not used || isJust old))
    iss `orLater` least = if iss `before` least then least else iss
    openingAlone act
      | alone st = act
      | otherwise = withMVar (stackOpening st) (const act)
