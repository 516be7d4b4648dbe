{-# OPTIONS_HADDOCK not-home #-}

-- |
-- Description : What happens to a connection, and what its user learns
module Weft.Tcp.Internal.Events
  ( Input (..),
    Failure (..),
    Answer (..),
  )
where

import Data.Word (Word32, Word8)
import Weft.Tcp.Icmp (Trouble)
import Weft.Tcp.Internal.Settings (Settings)
import Weft.Tcp.Segment (Segment)
import Weft.Tcp.Sequence

-- | An event for a connection.
data Input
  = -- | A segment came whose checksum is right.
    Arrived !Segment
  | -- | The deadline has passed.
    Due
  | -- | The user wrote this number of further bytes.
    Wrote !Word32
  | -- | As 'Wrote', and the user is about to write more: the last segment waits until it is full.
    WroteMore !Word32
  | -- | The user took this number of the bytes received in order.
    Consumed !Word32
  | -- | As 'Consumed', while the user has no more memory: the receive buffer does not grow.
    ConsumedOnly !Word32
  | -- | The user will write no more (the CLOSE of RFC 9293; a half-close).
    Shutdown
  | -- | The user will read no more. What the peer sends is acknowledged and dropped, until this end
    -- has closed, too: then it is answered with a reset.
    ShutRead
  | -- | The user will neither write nor read.
    Close
  | -- | Reset it.
    Abort
  | -- | Other settings from now on. Options agreed with the peer stay.
    Tune !Settings
  | -- | Acknowledge at once what comes from now on, or wait for the user's answers.
    Hasten !Bool
  | -- | A router, or the peer's host, says what became of a segment with this number.
    Icmp !Trouble !Seq

-- | Why a connection ended before its time.
data Failure
  = Refused
  | Reset
  | TimedOut
  | -- | No way there, with the code of the ICMP message.
    Unreached !Word8
  deriving stock (Eq, Show)

-- | A message to the user.
data Answer
  = -- | The connection is established.
    Opened
  | -- | Of the segment's payload these ranges are new. They are to be stored now; what lies before
    -- 'rcvNxt' may be read.
    Store ![Range]
  | -- | The peer writes no more.
    EndOfStream
  | -- | The peer has this number more of the bytes written.
    Acknowledged !Word32
  | Failed !Failure
  deriving stock (Eq, Show)
