-- |
-- Description : What static files need of a request
-- Stability   : not home
--
-- The one place that says where requests come from, for everything under
-- "Weft.Http.Static".
module Weft.Http.Static.Asked
  ( Request,
    requestMethod,
    requestPath,
    requestQuery,
    requestHost,
    requestConditions,
    requestFields,
    acceptEncoding,

    -- * Their parts
    Method (..),
    Conditions (..),
    isUnconditional,
    Field (..),
    lookupField,
    lookupFields,
  )
where

import Data.ByteString (ByteString)
import Weft.Http.Request

-- | The lines of @Accept-Encoding@.
acceptEncoding :: Request -> [ByteString]
acceptEncoding = lookupFields "accept-encoding" . requestFields
