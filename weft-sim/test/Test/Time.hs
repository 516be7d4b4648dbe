module Test.Time () where
