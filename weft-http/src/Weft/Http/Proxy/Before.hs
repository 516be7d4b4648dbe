-- |
-- Description : Bytes in front of a transport
-- Stability   : not home
--
-- What was received together with a PROXY header and belongs to the client: it is what
-- the next one to receive is given first. Used by the connection's thread only.
module Weft.Http.Proxy.Before
  ( bytesBefore,
  )
where

import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Unsafe (unsafeUseAsCString)
import Data.IORef
import Foreign.Marshal.Utils (copyBytes)
import Foreign.Ptr (castPtr, plusPtr)
import Weft
import Weft.Buffer
import Weft.Http.Server.Types

-- | A transport that gives these bytes first.
bytesBefore :: ByteString -> Transport -> IO Transport
bytesBefore bytes transport
  | B.null bytes = pure transport
  | otherwise = do
      left <- newIORef bytes
      pure
        transport
          { transportReceive = \buffer offset count -> do
              have <- liftIO (readIORef left)
              if B.null have
                then transportReceive transport buffer offset count
                else liftIO $ do
                  n <- min (B.length have) <$> receiveRoom buffer offset count
                  unsafeUseAsCString have $ \from -> withBuffer buffer $ \to -> copyBytes (to `plusPtr` offset) (castPtr from) n
                  n <$ writeIORef left (B.drop n have),
            transportPending = do
              have <- readIORef left
              if B.null have then transportPending transport else pure True
          }
