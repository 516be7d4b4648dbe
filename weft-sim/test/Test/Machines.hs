module Test.Machines () where
