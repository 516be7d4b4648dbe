{-# OPTIONS_GHC -O2 #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | Scans the field lines of a complete head in one pass, without comparing offsets with the length
-- (Note [The head is its own sentinel] in "Weft.Http.RequestHead"), and picks out the fields that the
-- server acts on. Faults of syntax are found in the order of the text.
module Weft.Http.Internal.Fields (EndOfHead (..), endOfHead, scanFields, ScannedFields (..), Picked (..)) where

import Data.Bits ((.|.))
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.ByteString.Char8 qualified as C
import Data.ByteString.Unsafe qualified as U
import Weft.Http.Internal.Ascii
import Weft.Http.Internal.Framing
import Weft.Http.Internal.Types

-- | The end of a head, which is found with @memchr@ before a parser goes over it.
data EndOfHead
  = -- | The offset after the empty line.
    Ends !Int
  | -- | Not found; the offset to resume from when more bytes have arrived.
    Resume !Int

-- | Find the first @LF LF@ (of a head that will be refused) or @LF CR LF@ from an offset on.
endOfHead :: ByteString -> Int -> EndOfHead
endOfHead buffer = go
  where
    size = B.length buffer
    at = U.unsafeIndex buffer
    go !i = case B.elemIndex LF (U.unsafeDrop i buffer) of
      Nothing -> Resume size
      Just found
        | j + 1 >= size -> Resume j
        | at (j + 1) == LF -> Ends (j + 2)
        | at (j + 1) /= CR -> go (j + 1)
        | j + 2 >= size -> Resume j
        | at (j + 2) == LF -> Ends (j + 3)
        | otherwise -> go (j + 1)
        where
          j = i + found
-- Inlined so that its outcome is not allocated.
{-# INLINE endOfHead #-}

-- | The fields that the server acts on, except @Host@.
data Picked = Picked
  { pickedLength :: !Once,
    pickedCodings :: !Codings,
    pickedClose :: !Bool,
    pickedKeepAlive :: !Bool,
    pickedExpectation :: !Expectation,
    -- | A field of 'Conditions' that may occur once was repeated.
    pickedRepeated :: !Bool,
    pickedConditions :: !Conditions
  }

nothingPicked :: Picked
nothingPicked = Picked Absent NoCodings False False NoExpectation False noConditions

-- | One constructor, whose parts are returned in registers; those not needed in the loops are lazy.
data ScannedFields = ScannedFields
  { -- | The first fault of syntax, which invalidates the rest.
    scannedFault :: !(Maybe Fault),
    -- | All fields in the order of the text; reversed lazily.
    scannedFields :: [Field],
    scannedHost :: Once,
    scannedOthers :: Picked,
    -- | The offset after the empty line.
    scannedEnd :: !Int
  }

-- | Scan at most this number of field lines up to the empty line. Every step is a tail call.
scanFields :: Int -> ByteString -> Int -> ScannedFields
scanFields most h start = line start most [] 0 0 nothingPicked
  where
    at = U.unsafeIndex h
    faulty fault = ScannedFields (Just fault) [] Absent nothingPicked 0

    -- The offsets of Host's value: both 0 without one; the second is -1 for a repeated Host.
    line !p !room fields !hostFrom !hostTo picked
      | at p == CR =
          if at (p + 1) == LF
            then let !host = hostOf hostFrom hostTo in ScannedFields Nothing (reverse fields) host picked (p + 2)
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

    -- Setting this bit maps no other byte to a letter.
    isHost i = letter i 0x68 && letter (i + 1) 0x6f && letter (i + 2) 0x73 && letter (i + 3) 0x74
    letter i lower = at i .|. 0x20 == lower

    noName w
      | isBlank w = FoldedField
      | w == LF = BareLineFeed
      | otherwise = BadFieldName
    noColon w
      | isBlank w = BlankBeforeColon
      | otherwise = BadFieldName

-- | Record a field. Its length selects the one or two names that it is compared with.
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
    -- Copies only when a client splits a list over several lines.
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

-- | 'ExpectContinue' if every line says just @100-continue@.
expectation :: ByteString -> Expectation -> Expectation
expectation value before
  | eqCaseless "100-continue" value, before /= ExpectUnknown = ExpectContinue
  | otherwise = ExpectUnknown
