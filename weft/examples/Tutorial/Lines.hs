-- |
-- An example: lines from a connection.
module Tutorial.Lines
  ( lineReader,
  )
where

import Data.ByteString.Char8 (ByteString)
import Weft
import Weft.Reader
import Weft.Socket

-- | An action that waits for the next line, of at most this many bytes: 'Nothing' at the
-- end of the stream, also in the middle of a line, or when a line is longer.
lineReader :: Int -> Socket -> Thread (Thread (Maybe ByteString))
lineReader longest client = do
  reader <- newReader client
  pure $ readLine reader longest `catch` \(_ :: ReadError) -> pure Nothing
