{-# OPTIONS_HADDOCK not-home #-}

-- | The conditions of a simulated world. Delays, sizes and how often small things go wrong
-- everywhere. An event at a certain time and place (a crash, a partition) is a fault instead.
module Weft.Sim.Internal.Conditions (Conditions (..), calm, rough) where

import Weft.Internal.Data.Time (Duration, microseconds, milliseconds, seconds)

-- | Each event draws from the ranges of durations; rates are probabilities for each event.
data Conditions = Conditions
  { -- \* Network

    -- | From one machine to another, for each segment or datagram.
    linkDelay :: !(Duration, Duration),
    -- | Within a machine.
    loopbackDelay :: !(Duration, Duration),
    -- | Bytes that a link carries per second; 0: without limit.
    linkBandwidth :: !Int,
    -- | Bytes that a connection holds in each direction before the sender waits.
    streamBuffer :: !Int,
    -- | Cut sent bytes at arbitrary points, so that they arrive in other pieces?
    segmentation :: !Bool,
    -- | Of sends: takes only a part of what it could.
    shortSends :: !Double,
    -- | Of attempts ("Weft.Attempt") that could succeed: answers that it would have to wait, as
    -- the real kernel does when it is short of memory.
    failedAttempts :: !Double,
    -- | Of datagrams between machines.
    datagramLoss, datagramDuplication :: !Double,
    -- | Of segments: the connection is reset.
    connectionResets :: !Double,
    -- | Of accepts: fails with an error of the peer (@ECONNABORTED@) or, for a moment, of this
    -- machine (@EMFILE@). The kernel handles them as the real one does.
    acceptErrors :: !Double,
    -- | How long connecting to a machine that does not answer takes to fail.
    connectPatience :: !Duration,
    -- | How long a connection lives without its peer's acknowledgements, before it fails with
    -- @ETIMEDOUT@.
    retransmissionPatience :: !Duration,
    -- \* Disk

    -- | For each operation, and for each sync.
    diskDelay, syncDelay :: !(Duration, Duration),
    -- | Of reads and writes: moves only a part of what it could.
    shortReads, shortWrites :: !Double,
    -- | Of reads, and of writes and syncs, that fail with @EIO@.
    readErrors, writeErrors :: !Double,
    -- | Bytes that all files of a machine may hold together, before @ENOSPC@.
    diskCapacity :: !Int,
    -- \* Resources and completions

    -- | Descriptors of each machine, 100,000 at most.
    descriptorLimit :: !Int,
    -- | Of operations whose result is known at once: completes later, so that completions come out
    -- of order and in batches.
    lateCompletions :: !Double,
    -- | How much later.
    completionDelay :: !(Duration, Duration),
    -- | Of cancellations: takes effect after a moment, in which the operation may still succeed.
    lateCancellations :: !Double,
    -- | Of events: no thread runs for a moment after it, as when the operating system runs others.
    -- More events happen meanwhile, so that several completions are found at once.
    stalls :: !Double,
    -- | How long the moment is.
    stallTime :: !(Duration, Duration)
  }
  deriving stock (Eq, Show)

-- | Nothing goes wrong: a quick local network, disks that work.
calm :: Conditions
calm =
  Conditions
    { linkDelay = (microseconds 100, microseconds 100),
      loopbackDelay = (microseconds 5, microseconds 5),
      linkBandwidth = 0,
      streamBuffer = 262_144,
      segmentation = False,
      shortSends = 0,
      failedAttempts = 0,
      datagramLoss = 0,
      datagramDuplication = 0,
      connectionResets = 0,
      acceptErrors = 0,
      connectPatience = seconds 127,
      retransmissionPatience = seconds 924,
      diskDelay = (microseconds 20, microseconds 20),
      syncDelay = (milliseconds 1, milliseconds 1),
      shortReads = 0,
      shortWrites = 0,
      readErrors = 0,
      writeErrors = 0,
      diskCapacity = maxBound,
      descriptorLimit = 20_000,
      lateCompletions = 0,
      completionDelay = (mempty, mempty),
      lateCancellations = 0,
      stalls = 0,
      stallTime = (mempty, mempty)
    }

-- | The troubles of every day, which a correct program survives: jitter, pieces, short reads and
-- writes, lost datagrams, completions in any order. No errors.
rough :: Conditions
rough =
  calm
    { linkDelay = (microseconds 20, milliseconds 5),
      loopbackDelay = (mempty, microseconds 200),
      streamBuffer = 16_384,
      segmentation = True,
      shortSends = 0.1,
      failedAttempts = 0.2,
      datagramLoss = 0.05,
      datagramDuplication = 0.02,
      acceptErrors = 0.02,
      diskDelay = (microseconds 1, milliseconds 2),
      syncDelay = (microseconds 100, milliseconds 20),
      shortReads = 0.1,
      shortWrites = 0.1,
      lateCompletions = 0.3,
      completionDelay = (mempty, microseconds 100),
      lateCancellations = 0.5,
      stalls = 0.1,
      stallTime = (mempty, microseconds 500)
    }
