-- | Any keys and entries.
module Entries (key, entry, records) where

import Data.ByteString qualified as ByteString
import Replicated.Entry
import Replicated.LogFormat (Record)
import Test.QuickCheck

key :: Gen Key
key = ByteString.pack <$> (chooseInt (0, 8) >>= vector)

entry :: Gen Entry
entry = Entry <$> (Version <$> arbitrary <*> arbitrary) <*> (ByteString.pack <$> (chooseInt (0, 30) >>= vector))

record :: Gen Record
record = (,) <$> key <*> entry

records :: Gen [Record]
records = chooseInt (1, 4) >>= (`vectorOf` record)
