-- |
-- Description : The behaviour of an event manager, on every source
module Test.Events.Conformance
  ( conformance,
  )
where

import Test.Events.Descriptors (descriptors)
import Test.Events.Exceptions (exceptions)
import Test.Events.Rig (Rig (rigName))
import Test.Events.Timeouts (timeouts)
import Test.Tasty

-- | All tests that need no second thread.
conformance :: Rig -> TestTree
conformance rig = testGroup (rigName rig) [descriptors rig, timeouts rig, exceptions rig]
