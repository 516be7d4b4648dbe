-- Without full laziness: decision 120.
{-# OPTIONS_GHC -O2 -fno-full-laziness #-}
-- A copy of 'requests' for an output that is known to be empty makes that anew each time.
{-# OPTIONS_GHC -fno-spec-constr #-}
{-# OPTIONS_HADDOCK not-home #-}

-- | The session of one client: receive a head, have it answered, send the response, begin again.
-- Pipelined requests are answered in order, their responses gathered into few sends.
module Weft.Http.Server.Connection (beginning, receiving) where

import Control.Monad (unless, when)
import Data.ByteString qualified as B
import Data.Int (Int64)
import GHC.Stack (emptyCallStack)
import Weft
import Weft.Buffer (Buffer)
import Weft.Http.RequestHead
import Weft.Http.Server.Answering
import Weft.Http.Server.AtOnce
import Weft.Http.Server.Exchange
import Weft.Http.Server.Heads
import Weft.Http.Server.Incoming
import Weft.Http.Server.Input
import Weft.Http.Server.Layout (Layout)
import Weft.Http.Server.Outgoing
import Weft.Http.Server.Phase
import Weft.Http.Server.Registry
import Weft.Http.Server.State
import Weft.Http.Server.Wire
import Weft.Internal.Core.Buffer (bufferFrom, unsafeSlice)
import Weft.Internal.Core.Standing (Arrival (..), Intake, bufferMemory, intakeBuffer, newIntake)
import Weft.Internal.Core.Trace (standingReceive)
import Weft.Time

-- Note [What is rare]
-- ~~~~~~~~~~~~~~~~~~~
-- Nearly all requests pass through 'received' and 'atOnce', or 'requests' and one function more. The
-- rare cases, and code that takes server and connection apart, are functions of their own. Where GHC
-- would inline one, take both apart at the beginning, and have each closure hold a dozen of their fields,
-- a pragma forbids it.

-- | The state of the session when all received requests were answered.
data Pause
  = Over
  | -- | It waits for more. This input is used up.
    Awaits !Input

beginning :: Context -> Connection -> Thread ()
beginning context c = requests context c NoInput unseen noOutput >>= onward context c

onward :: Context -> Connection -> Pause -> Thread ()
onward context c = \case
  Over -> pure ()
  Awaits input -> receiving context c input

-- | Receive and answer requests until the connection ends; the input is used up.
receiving :: Context -> Connection -> Input -> Thread ()
receiving context c input = case remainder input of
  Just buffer -> receivingInto context c buffer
  Nothing -> liftIO (freshFor input) >>= receivingInto context c
{-# OPAQUE receiving #-}

-- | With room in the buffer, wait in the same place ("Weft.Internal.Core.Standing").
receivingInto :: Context -> Connection -> Buffer -> Thread ()
receivingInto context c buffer = case connectionTransport c of
  Nothing -> do
    intake <- liftIO (newIntake True (connectionSocket c) buffer)
    let !session = Session context c {connectionIntake = Just intake} intake
    standingReceive emptyCallStack intake (received session) >>= onward context c
  Just transport -> do
    n <- transportReceive transport buffer 0 maxBound
    unless (n == 0) $ requests context c (Input buffer 0 n) unseen noOutput >>= onward context c

-- | Bytes have come. 'Nothing': they were requests, now answered, and the next goes after them.
received :: Session -> Arrival -> Thread (Maybe Pause)
received session came = runOnce $ case contextShortcut (sessionContext session) of
  NoShortcut -> attended session came Unread
  AtHandFirst _ ->
    liftIO (atOnce session came) >>= \case
      Nothing -> pure Nothing
      Just rest -> attended session came rest
  PlainFirst -> plainly session came
{-# INLINE received #-}

-- | Have an application in plain 'IO' answer, if its answer is kept with the head of a request that has come alone.
plainly :: Session -> Arrival -> Thread (Maybe Pause)
plainly session@(Session context c intake) came@(Arrival from n)
  | n == 0 = attended session came Unread
  | otherwise = runOnce $ case readHead (serverHeads server) unseen (unsafeSlice (intakeBuffer intake) from n) of
      reading@(Known (Parsed h _) (AnswersPlainly answer layout)) -> do
        let !input = afterAll intake came reading
        let begin = newAnswering (Request h EmptyBody (connectionClient c)) input (isPersistent h) untimed layout
        appliedPlain context c answer (enter server c Handling) begin settling >>= \case
          Waits -> pure Nothing
          next -> proceeding context c h input next >>= paused intake came
      reading -> attended session came (Unanswered reading)
  where
    server = contextServer context
    settling = (\ends -> if ends then Stops else Waits) <$> idleAgain context c intake from
{-# OPAQUE plainly #-}

-- | Go on after the first effect. Opaque, so that the first effect keeps the intake and not its parts.
attended :: Session -> Arrival -> AtOnce -> Thread (Maybe Pause)
attended (Session context c intake) came@(Arrival from n) first = runOnce (pausing >>= paused intake came)
  where
    pausing = case first of
      _ | n == 0 -> pure Over
      Unread -> requests context c input unseen noOutput
      Unanswered reading -> judged context c input noOutput reading
      Given _ _ left _ Waits _ -> pure (Awaits left)
      Given request layout left persistent sent response -> afterwards context c request layout left persistent untimed response sent
    !input = Input (bufferFrom from (intakeBuffer intake)) 0 n
{-# OPAQUE attended #-}

-- | How the session goes on, which has paused after what has come: 'Nothing' if the same receive can follow.
paused :: Intake -> Arrival -> Pause -> Thread (Maybe Pause)
paused intake (Arrival from n) pause =
  pure $! case pause of
    -- The intake is after what came by this receive, or at the start of what was given back; the rest
    -- of a head, which came by another one, lies where it would receive next.
    Awaits (Input used _ to) | to == n || to == 0, isRoomy used to n, bufferMemory used == bufferMemory rest -> Nothing
    _ -> Just pause
  where
    rest = bufferFrom from (intakeBuffer intake)

-- | Answer the requests that have come. The number: of the unread input the parser has seen this much.
requests :: Context -> Connection -> Input -> Int -> Output -> Thread Pause
requests context c !input !scanned !output
  | B.null given = flush context c output >> awaitRequest context c input
  | otherwise = runOnce $ judged context c input output (readHead (serverHeads (contextServer context)) scanned given)
  where
    given = unread input

judged :: Context -> Connection -> Input -> Output -> Reading Answerer -> Thread Pause
judged context c input output reading = case readingParsed reading of
  Parsed h used -> let !rest = afterHead reading used input in respond context c reading h rest output
  Incomplete seen -> incomplete context c input seen output
  Bad fault -> bad context c fault output
{-# INLINE judged #-}

-- | No part of a new head was seen. Named, or each request would make a value of it; so 'untimed'.
unseen :: Int
unseen = 0
{-# NOINLINE unseen #-}

untimed :: Int64
untimed = 0
{-# NOINLINE untimed #-}

-- | Receive more of a head, given how much of it was searched.
incomplete :: Context -> Connection -> Input -> Int -> Output -> Thread Pause
incomplete context c input seen output = do
  flush context c output
  -- The first byte of a head starts its time; more bytes do not extend it.
  liftIO (enterHead (contextServer context) c)
  receiveMore c input >>= \case
    Just input' -> requests context c input' seen noOutput
    Nothing -> Over <$ endOfInput context c input

bad :: Context -> Connection -> Fault -> Output -> Thread Pause
bad context c fault output = do
  flush context c output
  Over <$ refuse context c (faultStatus fault) (faultText fault)

-- | Between two requests. The buffer stays a while: waiting without one costs a turn of the event source.
awaitRequest :: Context -> Connection -> Input -> Thread Pause
awaitRequest context c input = do
  -- A new connection keeps the phase it was registered in: its first head is due.
  ending <- liftIO (isNew c >>= \fresh -> if fresh then pure False else becomeIdle context c input)
  pure (if ending then Over else Awaits input)

endOfInput :: Context -> Connection -> Input -> Thread ()
endOfInput context c input = do
  -- A connection that was idle when draining began is closed without a word: its client can try again.
  late <- liftIO ((&&) <$> expiredIn c <*> (not <$> isDraining (contextServer context)))
  when (late && not (B.null (unread input))) (refuse context c requestTimeout408 "The request took too long to arrive.")

respond :: Context -> Connection -> Reading Answerer -> RequestHead -> Input -> Output -> Thread Pause
respond context c reading h input output = case serverAnswers server of
  ByHandler _ handler | isPlain settings h -> handled context c handler h (layoutOf reading) input output
  ByPlain application | isPlain settings h, isEmptyOutput output -> appliedAtOnce context c application reading h input
  _ -> answeredAtLength context c h (layoutOf reading) input output
  where
    server = contextServer context
    settings = serverSettings server
{-# INLINE respond #-}

handled :: Context -> Connection -> Handler -> RequestHead -> Layout -> Input -> Output -> Thread Pause
handled context c handler h layout !input !output = runOnce $ do
  lastOne <- liftIO (beginHandling context c)
  let !request = Request h EmptyBody (connectionClient c)
      !persistent = isPersistent h && not lastOne
  if contextQuiet context
    then askedSince context c handler request layout input output persistent untimed
    else now >>= askedSince context c handler request layout input output persistent . instantNanoseconds
{-# NOINLINE handled #-}

askedSince :: Context -> Connection -> Handler -> Request -> Layout -> Input -> Output -> Bool -> Int64 -> Thread Pause
askedSince context c handler request layout !input !output persistent start = runOnce $ case input of
  -- One request has come.
  Input _ from to
    | from == to,
      isEmptyOutput output -> do
        response <- answer
        liftIO (sendQuickly context c layout response request input persistent) >>= \case
          Waits | contextQuiet context -> pure (Awaits input)
          quick -> afterwards context c request layout input persistent start response quick
  _ -> do
    response <- answer
    transmitted context c request layout input persistent start response output
  where
    answer = handler request `catch` failing context
    {-# INLINE answer #-}
{-# NOINLINE askedSince #-}

afterwards :: Context -> Connection -> Request -> Layout -> Input -> Bool -> Int64 -> Response -> After -> Thread Pause
afterwards context c request layout input persistent start response = \case
  -- Nothing else waits to be sent.
  Slowly -> transmitted context c request layout input persistent start response noOutput
  Partly goesOn left -> do
    write context c [left]
    told'
    proceeding context c h input (Proceeds goesOn)
  next -> told' >> proceeding context c h input next
  where
    h = requestHead request
    told' = do
      answering <- liftIO (newAnswering request input persistent start layout)
      recorded context c answering (responseStatus response) (bodyLength (responseBody response))
{-# NOINLINE afterwards #-}

proceeding :: Context -> Connection -> RequestHead -> Input -> After -> Thread Pause
proceeding context c h input = \case
  Waits -> pure (Awaits input)
  Proceeds True -> requests context c input 0 noOutput
  Proceeds False -> Over <$ leave context c h input
  _ -> pure Over

-- | Send the response of a handler together with those before it, or by itself if it is large.
transmitted :: Context -> Connection -> Request -> Layout -> Input -> Bool -> Int64 -> Response -> Output -> Thread Pause
transmitted context c request layout input persistent start response output = do
  -- From here on the client has its time to take the response.
  draining <- liftIO (enter server c Sending >> isDraining server)
  answering <- liftIO (newAnswering request input (persistent && not draining) start layout)
  (goesOn, output') <- transmit context c answering response output
  waiting <- bounded context c output'
  if goesOn
    then requests context c input 0 waiting
    else flush context c waiting >> Over <$ leave context c (requestHead request) input
  where
    server = contextServer context
{-# NOINLINE transmitted #-}

newAnswering :: Request -> Input -> Bool -> Int64 -> Layout -> IO Answering
newAnswering request input keep start layout = do
  exchange <- newExchange
  pure $! Answering request input keep start (WithoutBody input) layout exchange

-- | Begin to answer a request: is it the last one that its connection may send ('serverMaxRequests')?
beginHandling :: Context -> Connection -> IO Bool
beginHandling context c = do
  enter server c Handling
  if most <= 0 then pure False else (>= most) <$> countRequest (connectionMember c)
  where
    server = contextServer context
    most = serverMaxRequests (serverSettings server)
{-# OPAQUE beginHandling #-}

-- | When it has come, in nanoseconds, if it is needed.
startOf :: Context -> Thread Int64
startOf context = if contextQuiet context then pure 0 else instantNanoseconds <$> now

-- | Have an application in plain 'IO' answer a request without a body. Its response is not kept for the
-- next one to go with: the server cannot know what the application does then.
appliedAtOnce :: Context -> Connection -> PlainApplication -> Reading Answerer -> RequestHead -> Input -> Thread Pause
appliedAtOnce context c application reading h input = runOnce $ do
  (begun, answer) <- liftIO $ do
    lastOne <- beginHandling context c
    begun <- newAnswering (Request h EmptyBody (connectionClient c)) input (isPersistent h && not lastOne) untimed (layoutOf reading)
    case reading of
      Known _ (AnswersPlainly answer _) -> pure (begun, answer)
      _ -> (begun,) <$> application h
  answering <- if contextQuiet context then pure begun else (\start -> begun {answeringSince = start}) <$> startOf context
  appliedPlain context c answer (pure ()) (pure answering) settling >>= proceeding context c h input
  where
    settling = case input of
      -- One request has come.
      Input _ from to | from == to -> (\ends -> if ends then Stops else Waits) <$> becomeIdle context c input
      _ -> Proceeds True <$ withdraw (connectionMember c)
{-# NOINLINE appliedAtOnce #-}

-- | A request that may have a body, or one of which there may be too many.
answeredAtLength :: Context -> Connection -> RequestHead -> Layout -> Input -> Output -> Thread Pause
answeredAtLength context c h layout input output = do
  lastOne <- liftIO (beginHandling context c)
  start <- startOf context
  -- The client may wait for earlier responses before it goes on with its body.
  flush context c output
  exchange <- liftIO newExchange
  incoming <- liftIO (openBody context c exchange h input)
  let request = Request h (requestBodyOf context c incoming) (connectionClient c)
  (goesOn, output') <- answered context c (Answering request input (isPersistent h && not lastOne) start incoming layout exchange)
  if not goesOn
    then liftIO (stopReceiving exchange) >> flush context c output' >> Over <$ linger context c
    else case headFraming h of
      NoBody -> bounded context c output' >>= requests context c input 0
      _ -> do
        flush context c output'
        skipRest context c incoming >>= \case
          Just input' -> requests context c input' 0 noOutput
          Nothing -> Over <$ linger context c
{-# NOINLINE answeredAtLength #-}
