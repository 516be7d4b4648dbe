module Test.Property () where
