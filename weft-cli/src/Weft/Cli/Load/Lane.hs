{-# OPTIONS_HADDOCK not-home #-}

-- | The state of one connection of a load: the requests in progress, the part of a response that
-- has arrived, and the next step. Its actions do not block and hardly allocate; "Weft.Cli.Load.Run"
-- is the thread that runs it.
--
-- == Note [Due and sent]
--
-- A request is /due/ at its scheduled time, and /sent/ later if no connection was free. At a fixed
-- rate the two differ as soon as the server is slow, and measuring from the latter would hide just
-- what users notice (coordinated omission). So the latency counts from the due time, which also
-- decides whether a request counts at all. Without a schedule the two are equal.
module Weft.Cli.Load.Lane
  ( -- * Lanes
    Shared (..),
    Lane (..),
    newLane,
    outstanding,
    oldestSent,
    lastAnswer,
    flagTimeout,

    -- * The next thing to do
    Step (..),
    beginClosed,
    schedule,
    sendDue,
    sendAgain,
    received,
    unread,

    -- * The life of a connection
    opened,
    End (..),
    ended,
    withoutConnection,
  )
where

import Control.Monad (void, when)
import Data.ByteString (ByteString)
import Data.ByteString qualified as B
import Data.IORef
import Data.Maybe (isJust)
import Foreign.Marshal.Utils (moveBytes)
import Foreign.Ptr (plusPtr)
import Weft.Buffer
import Weft.Cli.Load.Cells
import Weft.Cli.Load.Control
import Weft.Cli.Load.Scan
import Weft.Cli.Load.Source
import Weft.Cli.Load.Tally
import Weft.Http.Body (Decoder, bodyDecoder, skip)
import Weft.Http.Body qualified as Body
import Weft.Http.Internal.ResponseHead
import Weft.Http.Internal.Types (Framing (..), Method (..), defaultLimits)
import Weft.Http.Status
import Weft.Internal.Core.Buffer (unsafeSlice)
import Weft.Socket (Socket)

data Shared = Shared
  { sharedSource :: !Source,
    sharedMethod :: !Method,
    -- | Requests in progress on one connection at a time.
    sharedDepth :: !Int,
    -- | Nanoseconds between two requests of all lanes together; 'Nothing' where each request
    -- waits for the response to the previous one.
    sharedPace :: !(Maybe Double),
    -- | The size of a connection's buffer.
    sharedInput :: !Int,
    sharedControl :: !Control
  }

data Lane = Lane
  { laneShared :: !Shared,
    laneTally :: !Tally,
    laneCells :: !Cells,
    laneInput :: !Buffer,
    laneOutput :: !Buffer,
    -- | For content that is not a known number of bytes.
    laneDecoder :: !(IORef Decoder),
    laneSocket :: !(IORef (Maybe Socket))
  }

-- Cells of a lane.
cellHave, cellMode, cellStatus, cellLeft, cellOldest, cellUnanswered, cellDice, cellTimedOut, cellSize, cellClosing, cellAnswered, cellLast, cellRing :: Int
cellHave = 0 -- bytes at the front of the input that are part of a head
cellMode = 1 -- what the next byte belongs to
cellStatus = 2 -- of the response that is coming
cellLeft = 3 -- bytes of its content that are to come
cellOldest = 4 -- where in the ring the oldest request is
cellUnanswered = 5 -- requests under way
cellDice = 6
cellTimedOut = 7 -- the ticker has cut the connection off
cellSize = 8 -- bytes of the response that have come
cellClosing = 9 -- the response is the last one of its connection
cellAnswered = 10 -- responses that this connection has brought
cellLast = 11 -- when the last response ended
cellRing = 16 -- when requests were due, then when they were sent

modeHead, modeFixed, modeDecoder, modeToTheEnd :: Int
modeHead = 0
modeFixed = 1
modeDecoder = 2
modeToTheEnd = 3

newLane :: Shared -> Tally -> Int -> IO Lane
newLane shared tally seed = do
  let depth = sharedDepth shared
  cells <- newCells (cellRing + 2 * depth)
  pokeCell cells cellDice seed
  Lane shared tally cells
    <$> newBuffer (sharedInput shared)
    <*> newBuffer (depth * sourceLargest (sharedSource shared))
    <*> newIORef (bodyDecoder defaultLimits NoBody)
    <*> newIORef Nothing

outstanding :: Lane -> IO Int
outstanding lane = peekCell (laneCells lane) cellUnanswered

-- | When the oldest request was sent. From any thread: its response may arrive meanwhile.
oldestSent :: Lane -> IO Int
oldestSent lane = peekCell (laneCells lane) cellOldest >>= \i -> peekCell (laneCells lane) (cellRing + sharedDepth (laneShared lane) + i)

lastAnswer :: Lane -> IO Int
lastAnswer lane = peekCell (laneCells lane) cellLast

flagTimeout :: Lane -> IO ()
flagTimeout lane = pokeCell (laneCells lane) cellTimedOut 1

data Step
  = Send !ByteString
  | Receive
  | -- | Ask the schedule when the next request is due.
    Next
  | -- | Wait until this time, then send what is due.
    SleepUntil !Int
  | -- | There is nothing left to do.
    Finish
  | -- | The server ends the connection with this response.
    Close
  | -- | What has come is no response.
    Malformed

prepare :: Lane -> Int -> Int -> Int -> IO ByteString
prepare (Lane shared _ cells _ output _ _) due sent count = do
  oldest <- peekCell cells cellOldest
  already <- peekCell cells cellUnanswered
  let depth = sharedDepth shared
      go i
        | i == count = pure ()
        | otherwise = do
            let j = oldest + already + i
                k = cellRing + (if j >= depth then j - depth else j)
            pokeCell cells k due
            pokeCell cells (k + depth) sent
            go (i + 1)
  go 0
  pokeCell cells cellUnanswered (already + count)
  nextRequests (sharedSource shared) cells cellDice output count

-- | The first requests of a connection, where each waits for the response to the previous one.
beginClosed :: Lane -> IO Step
beginClosed lane = clockNow >>= \t -> further lane t (sharedDepth (laneShared lane))

further :: Lane -> Int -> Int -> IO Step
further lane t wanted = do
  count <- claim (sharedControl (laneShared lane)) t wanted
  if count > 0
    then Send <$> prepare lane t t count
    else (\under -> if under == 0 then Finish else Receive) <$> outstanding lane

schedule :: Lane -> Double -> IO Step
schedule lane pace = maybe Finish SleepUntil <$> takeScheduled (sharedControl (laneShared lane)) pace

sendDue :: Lane -> Int -> IO ByteString
sendDue lane due = clockNow >>= \t -> prepare lane due (max due t) 1

-- | Repeat all requests in progress on another connection: their due times stay.
sendAgain :: Lane -> IO ByteString
sendAgain (Lane shared _ cells _ output _ _) = do
  t <- clockNow
  count <- peekCell cells cellUnanswered
  oldest <- peekCell cells cellOldest
  let depth = sharedDepth shared
  mapM_ (\i -> pokeCell cells (cellRing + depth + (oldest + i) `rem` depth) t) [0 .. count - 1]
  nextRequests (sharedSource shared) cells cellDice output count

unread :: Lane -> IO Int
unread lane = peekCell (laneCells lane) cellHave

-- | This number of bytes (at least one) has arrived: find and count the responses in them, and
-- answer the next step.
received :: Lane -> Int -> IO Step
received lane@(Lane shared _ cells input _ _ _) n = do
  t <- clockNow
  have <- peekCell cells cellHave
  done <- responses lane t 0 (have + n) 0
  if done < 0
    then pure (if done == closes then Close else Malformed)
    else case sharedPace shared of
      Nothing | done > 0 -> further lane t done
      Just _ | done > 0 -> pure Next
      _ -> do
        -- A head that fills the buffer will never end.
        have' <- peekCell cells cellHave
        pure (if have' >= bufferSize input then Malformed else Receive)

-- | Results of 'responses' beside the number of ended responses.
closes, broken :: Int
closes = -1
broken = -2

-- | Scan the input between two offsets, given the number of responses that have ended so far.
responses :: Lane -> Int -> Int -> Int -> Int -> IO Int
responses lane@(Lane shared _ cells input _ decoderRef _) t = go
  where
    go :: Int -> Int -> Int -> IO Int
    go !from !to !done
      | from >= to = done <$ pokeCell cells cellHave 0
      | otherwise = do
          mode <- peekCell cells cellMode
          if mode == modeHead then atHead from to done else inContent mode from to done

    atHead from to done = do
      under <- peekCell cells cellUnanswered
      end <- withBuffer input $ \p -> scanHead cells cellStatus cellLeft (sharedMethod shared == Head) p from to
      if
        | under == 0 -> pure broken
        | end > 0 -> do
            pokeCell cells cellSize (end - from)
            pokeCell cells cellMode modeFixed
            inContent modeFixed end to done
        | end == incomplete -> keep from to done
        | otherwise -> unusualHead from to done

    -- Move the beginning of a head to the front, with room after it.
    keep from to done = do
      when (from > 0) (withBuffer input (\p -> moveBytes p (p `plusPtr` from) (to - from)))
      pokeCell cells cellHave (to - from)
      pure done

    unusualHead from to done = case parseResponse defaultLimits (sharedMethod shared) 0 (unsafeSlice input from (to - from)) of
      IncompleteResponse _ -> keep from to done
      BadResponse _ -> pure broken
      ParsedResponse h used
        | statusCode (headStatus h) == 101 -> pure broken
        | statusCode (headStatus h) < 200 -> go (from + used) to done
        | otherwise -> do
            pokeCell cells cellStatus (statusCode (headStatus h))
            pokeCell cells cellSize used
            pokeCell cells cellClosing (if isReusable h then 0 else 1)
            mode <- case headExtent h of
              UntilClose -> pure modeToTheEnd
              Framed framing -> modeDecoder <$ writeIORef decoderRef (bodyDecoder defaultLimits framing)
            pokeCell cells cellMode mode
            inContent mode (from + used) to done

    inContent mode !from !to !done
      | mode == modeFixed = do
          left <- peekCell cells cellLeft
          let here = min left (to - from)
          grow here
          pokeCell cells cellLeft (left - here)
          if here == left then answered lane t >>= after' (from + here) to (done + 1) else done <$ pokeCell cells cellHave 0
      | mode == modeDecoder = do
          decoder <- readIORef decoderRef
          let bytes = unsafeSlice input from (to - from)
          case skip decoder bytes of
            Body.More decoder' -> do
              writeIORef decoderRef decoder'
              grow (to - from)
              done <$ pokeCell cells cellHave 0
            Body.End _ rest -> do
              grow (to - from - B.length rest)
              answered lane t >>= after' (to - B.length rest) to (done + 1)
            _ -> pure broken
      | otherwise = grow (to - from) >> done <$ pokeCell cells cellHave 0

    grow n = peekCell cells cellSize >>= \size -> pokeCell cells cellSize (size + n)

    after' from to done more = if more then go from to done else pure closes

answered :: Lane -> Int -> IO Bool
answered (Lane shared tally cells _ _ _ _) t = do
  let depth = sharedDepth shared
  oldest <- peekCell cells cellOldest
  due <- peekCell cells (cellRing + oldest)
  sent <- peekCell cells (cellRing + depth + oldest)
  start <- windowStart (sharedControl shared)
  status <- peekCell cells cellStatus
  size <- peekCell cells cellSize
  if due >= start
    then countResponse tally (isJust (sharedPace shared)) status size (t - due) (t - sent)
    else countWarmup tally
  pokeCell cells cellLast t
  pokeCell cells cellMode modeHead
  forget cells depth oldest
  before <- peekCell cells cellAnswered
  pokeCell cells cellAnswered (before + 1)
  (== 0) <$> peekCell cells cellClosing

forget :: Cells -> Int -> Int -> IO ()
forget cells depth oldest = do
  pokeCell cells cellOldest (if oldest + 1 == depth then 0 else oldest + 1)
  under <- peekCell cells cellUnanswered
  pokeCell cells cellUnanswered (under - 1)

opened :: Lane -> Socket -> IO ()
opened lane socket = do
  mapM_ (\i -> pokeCell (laneCells lane) i 0) [cellHave, cellMode, cellTimedOut, cellClosing, cellAnswered]
  writeIORef (laneSocket lane) (Just socket)

data End
  = -- | The server has closed it, or cut it off.
    Lost
  | -- | With a response that said so, or that ended with it.
    Agreed
  | -- | What came was no response.
    Nonsense

-- | Count the requests that the connection leaves unanswered. Answers whether it brought any
-- response.
ended :: Lane -> End -> IO Bool
ended lane@(Lane _ tally cells _ _ _ _) how = do
  writeIORef (laneSocket lane) Nothing
  timedOut <- (== 1) <$> peekCell cells cellTimedOut
  mode <- peekCell cells cellMode
  have <- peekCell cells cellHave
  case how of
    Nonsense -> do
      -- The server may have sent more than was requested.
      under <- outstanding lane
      if under > 0 then give FramingError else countError tally FramingError 1
    _ | timedOut -> give TimeoutError
    Agreed -> countReopened tally
    Lost
      | mode == modeToTheEnd -> void (clockNow >>= answered lane)
      | otherwise -> do
          useful <- (> 0) <$> peekCell cells cellAnswered
          -- A server may close a kept connection at any time between two responses; requests sent
          -- meanwhile are repeated.
          if useful && mode == modeHead && have == 0 then countReopened tally else give ResetError
  (> 0) <$> peekCell cells cellAnswered
  where
    give = giveUp lane

giveUp :: Lane -> ErrorKind -> IO ()
giveUp lane@(Lane shared tally cells _ _ _ _) kind = do
  under <- peekCell cells cellUnanswered
  when (under > 0) $ do
    oldest <- peekCell cells cellOldest
    due <- peekCell cells (cellRing + oldest)
    start <- windowStart (sharedControl shared)
    when (due >= start) (countError tally kind 1)
    forget cells (sharedDepth shared) oldest
    giveUp lane kind

-- | No connection could be made: count the request to be sent, or those to be repeated, as errors.
-- Answers whether anything is left to do.
withoutConnection :: Lane -> IO Bool
withoutConnection lane@(Lane shared tally _ _ _ _ _) = do
  t <- clockNow
  under <- outstanding lane
  if under > 0
    then True <$ giveUp lane ConnectError
    else do
      n <- claim (sharedControl shared) t 1
      start <- windowStart (sharedControl shared)
      when (n > 0 && t >= start) (countError tally ConnectError 1)
      pure (n > 0)
