{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: a server that computes.
module Tutorial.Heavy
  ( main,
    session,
    primesBelow,
  )
where

import Data.ByteString.Char8 qualified as Char8
import Tutorial.Lines (lineReader)
import Weft
import Weft.Concurrently
import Weft.Serve
import Weft.Socket

main :: IO ()
main = run $ serveTcp defaultServeSettings (Just "127.0.0.1") "7000" (\client _ -> session client)

-- | For each line with a number: how many primes are below it?
session :: Socket -> Thread ()
session client = lineReader 20 client >>= answer
  where
    answer nextLine =
      nextLine >>= \case
        Just line | Just (n, "") <- Char8.readInt line -> do
          count <- primesBelow n
          sendAll client (Char8.pack (show count <> "\n"))
          answer nextLine
        _ -> pure ()

-- | The work in parts, for as many workers as there are.
primesBelow :: Int -> Thread Int
primesBelow n = do
  workers <- workerCount
  counts <- forConcurrentlyN workers [(a, min n (a + 5000)) | a <- [2, 5002 .. n - 1]] $ \(from, to) ->
    pure $! length (filter isPrime [from .. to - 1])
  pure (sum counts)

isPrime :: Int -> Bool
isPrime k = all (\d -> k `mod` d /= 0) (takeWhile (\d -> d * d <= k) [2 ..])
