{-# OPTIONS_GHC -O2 #-}

-- |
-- Description : The header fields of a request, in one pass
-- Stability   : not home
--
-- Scans the field lines of a complete head and, in the same pass, picks out the
-- fields that the server acts on. Called by "Weft.Http.Internal.Head" with a
-- head that is known to end; see Note [The head is its own sentinel] there for
-- why nothing here compares an offset with the length.
--
-- Faults of syntax are found here, in the order of the text. What the picked
-- fields mean together is decided afterwards, in "Weft.Http.Internal.Head".
module Weft.Http.Internal.Fields
  ( -- * Scanning
    scanFields,
    Scanned (..),

    -- * What was picked out
    Picked (..),
  )
where

import Data.Bits ((.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe qualified as U
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Fault
import Weft.Http.Internal.Framing
import Weft.Http.Internal.Types

-- | The fields that the server acts on, as far as they were seen.
data Picked = Picked
  { pickedHost :: !Once,
    pickedLength :: !Once,
    pickedCodings :: !Codings,
    pickedClose :: !Bool,
    pickedKeepAlive :: !Bool,
    pickedExpectation :: !Expectation,
    -- | One of the 'Conditions' that may occur once did so twice.
    pickedRepeated :: !Bool,
    pickedConditions :: !Conditions
  }

nothingPicked :: Picked
nothingPicked = Picked Absent Absent NoCodings False False NoExpectation False noConditions

-- | The outcome of 'scanFields'.
data Scanned
  = -- | All fields in the order of the text, what was picked out, and the offset behind
    -- the empty line.
    Scanned ![Field] !Picked !Int
  | -- | The first fault of syntax.
    Faulty !Fault

-- | Scan at most so many field lines of a head from an offset, which is the start
-- of a line, up to its empty line.
scanFields :: Int -> ByteString -> Int -> Scanned
scanFields most h start = line start most [] nothingPicked
  where
    at = U.unsafeIndex h

    line !p !room fields !picked
      | at p == CR =
          if at (p + 1) == LF then Scanned (reverse fields) picked (p + 2) else Faulty BareCarriageReturn
      | room == 0 = Faulty TooManyFields
      | colon == p = Faulty (noName (at p))
      | at colon /= 0x3a = Faulty (noColon (at colon))
      | at end /= CR = Faulty (if at end == LF then BareLineFeed else ControlCharacter)
      | at (end + 1) /= LF = Faulty BareCarriageReturn
      | otherwise =
          let name = slice p colon h
              value = slice from (trimmed from end) h
              !field = Field name value
           in line (end + 2) (room - 1) (field : fields) (pick name value picked)
      where
        colon = token p
        from = blanks (colon + 1)
        end = fieldEnd h from

    token !i = if isTokenByte (at i) then token (i + 1) else i
    blanks !i = if isBlank (at i) then blanks (i + 1) else i
    trimmed from !i = if i > from && isBlank (at (i - 1)) then trimmed from (i - 1) else i

    noName w
      | isBlank w = FoldedField
      | w == LF = BareLineFeed
      | otherwise = BadFieldName
    noColon w
      | isBlank w = BlankBeforeColon
      | otherwise = BadFieldName

-- | Take notice of a field. Its length decides which one or two names it is
-- compared with, so that an uninteresting field costs next to nothing.
pick :: ByteString -> ByteString -> Picked -> Picked
pick name value p = case B.length name of
  4 | isHost -> p {pickedHost = another value (pickedHost p)}
  5 | is "range" -> single conditionRange (\v c -> c {conditionRange = v})
  6 | is "expect" -> p {pickedExpectation = expectation value (pickedExpectation p)}
  8
    | is "if-match" -> list conditionIfMatch (\v c -> c {conditionIfMatch = v})
    | is "if-range" -> single conditionIfRange (\v c -> c {conditionIfRange = v})
  10 | is "connection" -> connection value p
  13 | is "if-none-match" -> list conditionIfNoneMatch (\v c -> c {conditionIfNoneMatch = v})
  14 | is "content-length" -> p {pickedLength = another value (pickedLength p)}
  17
    | is "transfer-encoding" -> p {pickedCodings = moreCodings value (pickedCodings p)}
    | is "if-modified-since" ->
        single conditionIfModifiedSince (\v c -> c {conditionIfModifiedSince = v})
  19
    | is "if-unmodified-since" ->
        single conditionIfUnmodifiedSince (\v c -> c {conditionIfUnmodifiedSince = v})
  _ -> p
  where
    is lower = eqCaseless lower name
    -- In every request. Only a letter becomes a letter by this bit.
    isHost = at 0 0x68 && at 1 0x6f && at 2 0x73 && at 3 0x74
    at i letter = U.unsafeIndex name i .|. 0x20 == letter
    conditions = pickedConditions p
    single get set = case get conditions of
      Nothing -> p {pickedConditions = set (Just value) conditions}
      Just _ -> p {pickedRepeated = True}
    list get set = p {pickedConditions = set (Just $! joined (get conditions)) conditions}
    -- Copies, but only when a client splits one list over several lines.
    joined = \case
      Nothing -> value
      Just before -> B.concat [before, ", ", value]
{-# NOINLINE pick #-}

connection :: ByteString -> Picked -> Picked
connection value p
  | eqCaseless "keep-alive" value = p {pickedKeepAlive = True}
  | eqCaseless "close" value = p {pickedClose = True}
  | C.notElem ',' value = p
  | otherwise =
      p
        { pickedClose = pickedClose p || any (eqCaseless "close") options,
          pickedKeepAlive = pickedKeepAlive p || any (eqCaseless "keep-alive") options
        }
  where
    options = splitCommas value

-- | @100-continue@ in every line and nothing else, or unknown.
expectation :: ByteString -> Expectation -> Expectation
expectation value before
  | eqCaseless "100-continue" value, before /= ExpectUnknown = ExpectContinue
  | otherwise = ExpectUnknown
