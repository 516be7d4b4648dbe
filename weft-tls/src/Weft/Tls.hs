-- | TLS 1.2 and 1.3 for threads of Weft.
--
-- "Weft.Tls.Server" is a layer for the server of @weft-http@, "Weft.Tls.Client" connects to servers.
module Weft.Tls (module Weft.Tls.Server, module Weft.Tls.Client) where

import Weft.Tls.Client
import Weft.Tls.Server
