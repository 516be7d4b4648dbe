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

-- | The fields that the server acts on, as far as they were seen, but for @Host@.
data Picked = Picked
  { pickedLength :: !Once,
    pickedCodings :: !Codings,
    pickedClose :: !Bool,
    pickedKeepAlive :: !Bool,
    pickedExpectation :: !Expectation,
    -- | One of the 'Conditions' that may occur once did so twice.
    pickedRepeated :: !Bool,
    pickedConditions :: !Conditions
  }

nothingPicked :: Picked
nothingPicked = Picked Absent NoCodings False False NoExpectation False noConditions

-- | The outcome of 'scanFields'. One constructor, whose parts are returned in registers; and what
-- is not needed until the end of the scan is lazy, so that it is not taken apart in its loops.
data Scanned = Scanned
  { -- | The first fault of syntax. Then the rest means nothing.
    scannedFault :: !(Maybe Fault),
    -- | All fields in the order of the text. They are put in order when somebody looks at them.
    scannedFields :: [Field],
    scannedHost :: Once,
    -- | What else was picked out.
    scannedOthers :: Picked,
    -- | The offset behind the empty line.
    scannedEnd :: !Int
  }

-- | Scan at most so many field lines of a head from an offset, which is the start
-- of a line, up to its empty line. Each step calls the next as the last thing that it does, and
-- is compiled to a jump.
scanFields :: Int -> ByteString -> Int -> Scanned
scanFields most h start = line start most [] 0 0 nothingPicked
  where
    at = U.unsafeIndex h
    faulty fault = Scanned (Just fault) [] Absent nothingPicked 0

    -- Where the value of Host is: nowhere as long as both offsets are 0. The second is -1 when
    -- there are two.
    line !p !room fields !hostFrom !hostTo picked
      | at p == CR =
          if at (p + 1) == LF
            then let !host = hostOf hostFrom hostTo in Scanned Nothing (reverse fields) host picked (p + 2)
            else faulty BareCarriageReturn
      | room == 0 = faulty TooManyFields
      | otherwise = name p
      where
        name !i
          | isTokenByte (at i) = name (i + 1)
          | i == p = faulty (noName (at i))
          | at i /= 0x3a = faulty (noColon (at i))
          | otherwise = blanks i (i + 1)
        blanks !colon !i
          | isBlank (at i) = blanks colon (i + 1)
          | otherwise = case fieldEnd h i of end -> value colon i end
        value !colon !from !end
          | at end /= CR = faulty (if at end == LF then BareLineFeed else ControlCharacter)
          | at (end + 1) /= LF = faulty BareCarriageReturn
          | otherwise = trimmed colon from (end + 2) end
        trimmed !colon !from !next !to
          | to > from, isBlank (at (to - 1)) = trimmed colon from next (to - 1)
          | otherwise =
              let !field = Field (slice p colon h) (slice from to h)
                  others = field : fields
               in if colon - p == 4 && isHost p
                    then line next (room - 1) others from (if hostFrom == 0 then to else -1) picked
                    else case pick field picked of !picked' -> line next (room - 1) others hostFrom hostTo picked'

    hostOf !from !to
      | from == 0 = Absent
      | to < 0 = Repeated
      | otherwise = Once (slice from to h)

    -- Only a letter becomes a letter by this bit.
    isHost i = letter i 0x68 && letter (i + 1) 0x6f && letter (i + 2) 0x73 && letter (i + 3) 0x74
    letter i lower = at i .|. 0x20 == lower

    noName w
      | isBlank w = FoldedField
      | w == LF = BareLineFeed
      | otherwise = BadFieldName
    noColon w
      | isBlank w = BlankBeforeColon
      | otherwise = BadFieldName

-- | Take notice of a field. Its length decides which one or two names it is
-- compared with, so that an uninteresting field costs next to nothing.
pick :: Field -> Picked -> Picked
pick (Field name value) p = case B.length name of
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
