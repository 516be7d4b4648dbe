-- |
-- Description : Values shared by command line and configuration file
--
-- Readers that say what is wrong and what is expected. Pure.
module Weft.Cli.Serve.Choices (parseLogFormat, parseOverload, parseSchedule, parseEndpoint) where

import Weft.Cli.Options
import Weft.Cli.Serve.Config
import Weft.Http.AccessLog (LogFormat (..))
import Weft.Policy (Policy, favourAccepting, favourConnections, fifo)

-- | The format of an access log.
parseLogFormat :: String -> Either String LogFormat
parseLogFormat = choice " is not one of common, combined and json" [("common", Common), ("combined", Combined), ("json", Json)]

-- | Whether excess connections are refused.
parseOverload :: String -> Either String Bool
parseOverload = choice " is neither wait nor refuse" [("wait", False), ("refuse", True)]

-- | The order of ready threads.
parseSchedule :: String -> Either String Policy
parseSchedule = choice " is not one of fifo, connections and accept" [("fifo", fifo), ("connections", favourConnections), ("accept", favourAccepting)]

choice :: String -> [(String, a)] -> String -> Either String a
choice problem values text = maybe (Left (show text <> problem)) Right (lookup text values)

-- | An address or a name and a port; IPv6 in brackets.
--
-- >>> parseEndpoint "[::1]:9090"
-- Right (Endpoint {endpointHost = "::1", endpointPort = 9090})
parseEndpoint :: String -> Either String Endpoint
parseEndpoint text = case breakEnd text of
  (host, Right port) | Just name <- unbracketed host -> Right (Endpoint name port)
  _ -> Left (show text <> " is not an address and a port, such as 127.0.0.1:9090 or [::1]:9090")
  where
    -- At the last colon.
    breakEnd t = case break (== ':') (reverse t) of
      (port, ':' : host) -> (reverse host, parseNumber 0 65535 (reverse port))
      _ -> ("", Left "")
    unbracketed host = case host of
      '[' : rest | (name@(_ : _), "]") <- break (== ']') rest -> Just name
      _ : _ | all (`notElem` ("[]:" :: String)) host -> Just host
      _ -> Nothing
