{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: the echo server of the tutorial, by lines and with a time limit.
module Tutorial.Idle
  ( main,
    session,
  )
where

import Tutorial.Lines (lineReader)
import Weft
import Weft.Serve
import Weft.Socket
import Weft.Timeout

main :: IO ()
main = run $ serveTcp defaultServeSettings (Just "127.0.0.1") "7000" (\client _ -> session (seconds 60) client)

session :: Duration -> Socket -> Thread ()
session patience client = lineReader 1000 client >>= echo
  where
    echo nextLine =
      timeout patience nextLine >>= \case
        Just (Just line) -> sendAll client (line <> "\n") >> echo nextLine
        Just Nothing -> pure ()
        Nothing -> sendAll client "You have said nothing for a while. Goodbye.\n"
