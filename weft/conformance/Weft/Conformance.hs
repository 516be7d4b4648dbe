-- |
-- Description : The meaning of threads and their system calls, as tests
--
-- One suite for all kernels: the real ones of this package,
-- and simulated ones. It is about meaning only, never about cost; what it needs beside
-- threads is a t'World'.
--
-- Every test has a time limit of its own only if the tree that it stands in sets one.
module Weft.Conformance
  ( conformance,
    networkConformance,
    World (..),
    Listener (..),
  )
where

import Test.Tasty
import Weft.Conformance.Addresses
import Weft.Conformance.Attempts
import Weft.Conformance.Cancellation
import Weft.Conformance.Channels
import Weft.Conformance.Closing
import Weft.Conformance.Concurrently
import Weft.Conformance.Coordination
import Weft.Conformance.Datagrams
import Weft.Conformance.Directories
import Weft.Conformance.Endings
import Weft.Conformance.Files
import Weft.Conformance.Handover
import Weft.Conformance.Kept
import Weft.Conformance.Locals
import Weft.Conformance.Mutexes
import Weft.Conformance.Pipes
import Weft.Conformance.Races
import Weft.Conformance.Reading
import Weft.Conformance.Relaying
import Weft.Conformance.Resources
import Weft.Conformance.ScopeFailures
import Weft.Conformance.Scopes
import Weft.Conformance.Selecting
import Weft.Conformance.Serving
import Weft.Conformance.Signals
import Weft.Conformance.Sockets
import Weft.Conformance.Standing
import Weft.Conformance.Storms
import Weft.Conformance.Streams
import Weft.Conformance.System
import Weft.Conformance.Time
import Weft.Conformance.Timeouts
import Weft.Conformance.Transactions
import Weft.Conformance.Variables
import Weft.Conformance.World

-- | All tests of the suite, in this world.
conformance :: World -> TestTree
conformance world =
  testGroup
    (worldName world)
    [ testGroup
        "system calls"
        (map ($ world) [sockets, addresses, streams, standingReceives, attempting, closing, datagrams, files, directories, pipes, kept, time, signals, system, resources]),
      testGroup
        "threads"
        (map ($ world) [mutexes, coordination, variables, channels, selecting, transactions, locals, scopes, scopeFailures, concurrent, timeouts, endings]),
      testGroup
        "services"
        (map ($ world) [reading, relaying, serving]),
      testGroup
        "interruptions"
        (map ($ world) [cancellation, races, handover, storms])
    ]

-- | The part of the suite in which sockets occur, for worlds that differ in those only.
networkConformance :: World -> TestTree
networkConformance world =
  testGroup (worldName world) (map ($ world) [sockets, addresses, streams, standingReceives, attempting, closing, datagrams, kept, resources, reading, relaying, serving, cancellation, storms])
