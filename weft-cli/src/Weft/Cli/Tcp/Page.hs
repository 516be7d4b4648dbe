-- |
-- Description : Connections of a TCP of our own, as a page
--
-- The table of @weft tcp list@, answered beside metrics and probes.
module Weft.Cli.Tcp.Page (answeringTcp) where

import Data.ByteString.Char8 qualified as C
import Weft
import Weft.Http.Server.Types
import Weft.Tcp.Info

-- | Answer @\/tcp@ if a stack is open in this process; the handler answers all else.
answeringTcp :: Handler -> Handler
answeringTcp others request
  | requestPath request == "/tcp",
    requestMethod request `elem` [Get, Head] =
      liftIO socketsHere >>= \case
        [] -> others request
        stacks -> pure (plain ok200 [Field "Content-Type" "text/plain; charset=utf-8", Field "Cache-Control" "no-store"] (C.pack (showSockets (concat stacks))))
  | otherwise = others request
