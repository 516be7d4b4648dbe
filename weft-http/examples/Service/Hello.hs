-- |
-- The smallest service: one answer for every request, and an orderly end.
module Service.Hello (main) where

import Control.Monad (void)
import System.Posix.Signals (sigINT, sigTERM)
import Weft
import Weft.Http.Server
import Weft.Http.Status
import Weft.Signal
import Weft.Socket

main :: IO ()
main = run $ do
  listener <- listenTcp Nothing "8080" 4096
  server <- newServer defaultServerSettings (const hello)
  fork_ (serve server listener)
  withSignals [sigINT, sigTERM] (void . nextSignal)
  void (drain server [listener])

hello :: Handler
hello _ = pure (plain ok200 [Field "Content-Type" "text/plain"] "hello\n")
