module Test.Exploring () where
