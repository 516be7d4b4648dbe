{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: an answer that comes late, on a network that goes wrong.
module Simulation.Late
  ( main,
    failure,
    conversation,
    asking,
    reconnecting,
    right,
    drawn,
  )
where

import Control.Monad (forM, forever, unless)
import Data.ByteString qualified as ByteString
import Data.Word (Word8)
import Weft
import Weft.Ref
import Weft.Sim
import Weft.Socket
import Weft.Timeout

main :: IO ()
main = failure asking >>= maybe (putStrLn "Nothing went wrong.") putStrLn

-- | The report of what goes wrong first, with as few faults as it takes.
failure :: Asking -> IO (Maybe String)
failure ask = do
  found <- findFailureWith drawn (\_ _ -> pure ()) [0 .. 199] program right
  forM found $ \first -> do
    smallest <- shrinkFailure 500 program right first
    renderFailure program smallest
  where
    program = conversation ask

-- | Each seed has a network that goes wrong in its own way.
drawn :: Seed -> IO Config
drawn seed = do
  faults <-
    drawFaults
      FaultPlan
        { planMachines = ["server"],
          planBystanders = ["home"],
          planKinds = [Partitions],
          planFrom = seconds 0,
          planUntil = seconds 2,
          planCount = 2,
          planLength = seconds 3
        }
      seed
  pure roughConfig {configFaults = faults}

-- | Answers each byte with its double.
server :: Thread ()
server = withSocket (listenTcp (Just "0.0.0.0") "7000" 16) $ \listener -> forever $ do
  (client, _) <- accept listener
  fork_ (answers client `finally` closeSocket client)
  where
    answers client = do
      question <- receive client 1
      unless (ByteString.null question) $ do
        sendAll client (ByteString.map (* 2) question)
        answers client

-- | A way to ask the server at this address: given how to connect, and a place for the
-- connection.
type Asking = Thread Socket -> Ref (Maybe Socket) -> Word8 -> Thread (Maybe Word8)

-- | Twenty questions, a tenth of a second apart, and their answers.
conversation :: Asking -> Thread [(Word8, Maybe Word8)]
conversation ask = do
  machine <- newMachine "server"
  boot machine server
  sleep (milliseconds 10)
  connection <- newRef Nothing
  forM [1 .. 20] $ \n -> do
    answer <- ask (dial (SockAddrInet 7000 (machineAddress machine))) connection n
    sleep (milliseconds 100)
    pure (n, answer)
  where
    dial address = do
      s <- openSocket AF_INET Stream
      connect s address `onException` closeSocket s
      pure s

right :: Verdict [(Word8, Maybe Word8)]
right = flawlessAnd $ \answers -> case [(n, a) | (n, Just a) <- answers, a /= 2 * n] of
  [] -> Nothing
  (n, a) : _ -> Just ("asked " <> show n <> ", answered " <> show a)

-- | Ask, and wait for a second.
asking :: Asking
asking dial connection n = timeout (seconds 1) $ do
  s <- readRef connection >>= maybe dial pure
  writeRef connection (Just s)
  sendAll s (ByteString.singleton n)
  ByteString.head <$> receive s 1

-- | 'asking', and after a question without an answer another connection.
reconnecting :: Asking
reconnecting dial connection n = do
  answer <- asking dial connection n
  case answer of
    Just _ -> pure ()
    Nothing -> readRef connection >>= mapM_ closeSocket >> writeRef connection Nothing
  pure answer
