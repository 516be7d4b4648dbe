{-# LANGUAGE OverloadedStrings #-}

-- |
-- An example: lines from a connection.
module Tutorial.Lines
  ( lineReader,
  )
where

import Data.ByteString.Char8 (ByteString)
import Data.ByteString.Char8 qualified as Char8
import Data.IORef
import Weft
import Weft.Socket

-- | An action that waits for the next line, of at most so many bytes: 'Nothing' at the
-- end of the stream, or when a line is longer.
lineReader :: Int -> Socket -> Thread (Thread (Maybe ByteString))
lineReader longest client = next <$> liftIO (newIORef "")
  where
    next rest = liftIO (readIORef rest) >>= go rest
    go rest bytes = case Char8.elemIndex '\n' bytes of
      Just n | n <= longest -> do
        liftIO (writeIORef rest (Char8.drop (n + 1) bytes))
        pure (Just (Char8.filter (>= ' ') (Char8.take n bytes)))
      Nothing | Char8.length bytes <= longest -> do
        more <- receive client 4096
        liftIO (writeIORef rest (bytes <> more))
        if Char8.null more then pure Nothing else go rest (bytes <> more)
      _ -> pure Nothing
