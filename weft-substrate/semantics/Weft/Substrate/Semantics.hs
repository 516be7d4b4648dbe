{-# LANGUAGE GADTs #-}
{-# LANGUAGE TypeFamilies #-}

-- |
-- Description : The meaning of programs over the substrate: every schedule
--
-- The operational semantics of the substrate as a program. A state is a soup of HECs and a heap
-- of variables and suspended stacks; the rules say which states follow. 'outcomes' takes them all.
--
-- The rules are those of Li 2008, figures 4.4 to 4.8. The pictures of figures 4.6 to 4.8 are
-- lost in the text that we have: the rules 'isRebuilt' are put together from what the text says of them
-- (sections 4.3.3 to 4.3.5) and the grammar of states. Those of figure 4.10 that run a handler inside of an
-- interrupted computation are replaced, because GHC cannot: 'Displace' takes the HEC from its stack and has it
-- run what the library says, and the stack goes on without a HEC until 'Comeback'.
module Weft.Substrate.Semantics
  ( -- * Rules
    Rule (..),
    isRebuilt,

    -- * Running
    Model,
    Outcome,
    outcomes,
    Outcomes (..),
  )
where

import Data.IntMap.Strict (IntMap)
import Data.IntMap.Strict qualified as IntMap
import Data.Map.Strict (Map)
import Data.Map.Strict qualified as Map
import Data.Set (Set)
import Data.Set qualified as Set
import GHC.Exts (Any)
import Unsafe.Coerce (unsafeCoerce)
import Weft.Substrate.Program

-- | The names of the rules. Those that begin with P are of transactions; of those that follow, the
-- ones with At are of a whole transaction.
data Rule
  = -- | @return N >>= M@ goes on as @M N@.
    Bound
  | -- | An exception passes a @>>=@.
    Thrown
  | -- | A catch of what returns.
    IOCatch
  | -- | A catch of what throws.
    IOCatchExp
  | PBind
  | PThrow
  | PNew
  | PRead
  | PWrite
  | PCatch
  | -- | The handler runs with the heap of before, and what was allocated since.
    PCatchExp
  | -- | Sleep passes through a catch, with what was written.
    PCatchSleep
  | -- | Nothing follows a sleep.
    PSleep
  | GetHEC
  | GetStackId
  | GetSLS
  | GetSLSDefault
  | AtReturn
  | AtThrow
  | -- | What was written is committed; the HEC sleeps, and begins the transaction again when woken.
    AtSleep
  | Wakeup
  | -- | A HEC that does not sleep is not woken.
    WakeupNop
  | NewStackRule
  | SwitchTo
  | SwitchSelf
  | SwitchThrow
  | SwitchSleep
  | -- | Where the text is stuck: the target is not suspended. Nothing is written.
    SwitchNotSuspended
  | NewSLSKey
  | SetSLS
  | RaiseAsyncRule
  | InCallRule
  | -- | A HEC whose stack ends disappears.
    InCallRet
  | -- | A HEC whose stack ends with an exception does, too.
    InCallThrow
  | -- | Of a HEC with handlers: its end is a step that others can come before.
    GovernedRet
  | InCallWithRule
  | -- | A HEC runs the switch that the library chooses, on a new stack; the one that it ran is on no HEC.
    Displace
  | -- | A stack that is on no HEC has come to an operation that needs one: in the step of what the library
    -- does about that it is suspended there.
    Comeback
  | -- | From outside: displace what a HEC runs.
    TickRule
  | -- | It sleeps, has ended, or has no handlers.
    TickNop
  | OutCallRule
  deriving stock (Eq, Ord, Show, Enum, Bounded)

-- | Is it put together from the prose, or ours?
isRebuilt :: Rule -> Bool
isRebuilt = (>= AtSleep)

-- | The world of the semantics.
data Model

newtype ModelVariable a = ModelVariable Int

data ModelKey a = ModelKey Int a

type instance Variable Model = ModelVariable

type instance Stack Model = Int

type instance Hec Model = Int

type instance Key Model = ModelKey

-- | The messages of each stack, by its name.
type Outcome = Map String [String]

-- | All that can happen.
data Outcomes = Outcomes
  { -- | What can be said at the end, and whether HECs sleep then.
    allOutcomes :: Set (Outcome, Bool),
    -- | The rules that were used.
    usedRules :: Set Rule,
    countSchedules :: Int
  }

-- | A suspended or running stack: its name, what is left of it, and its dictionary.
data Suspended = Suspended String (Term ()) (IntMap Any)

-- | A term with its contexts: what it does next, and then.
data Term a where
  End :: a -> Term a
  Raise :: Problem -> Term a
  Step :: Program Model b -> (b -> Term a) -> Handlers a -> Term a
  -- | A rule that changes nothing else.
  By :: Rule -> Term a -> Term a

-- | The innermost first.
type Handlers a = Maybe (Problem -> Term a)

-- | The handlers of a HEC for a stack that was displaced, and for one that has returned.
data Governing = Governing (Int -> Transaction Model Int) (Int -> Transaction Model ())

-- | Does it sleep, which stack is it on, what is left of that, and has it handlers?
data HecState = HecState {isAsleep :: Bool, _running :: Int, _code :: Suspended, _governing :: Maybe Governing}

data State = State
  { soup :: IntMap HecState,
    variables :: IntMap Any,
    suspended :: IntMap Suspended,
    -- | Those that were displaced, and the handlers of the HECs that they were on.
    loose :: IntMap (Governing, Suspended),
    next :: Int,
    said :: Outcome
  }

-- | The term of a program, with what follows it and what handles its exceptions, down to an operation of
-- the substrate. The rules on the way change nothing but the term.
term :: Program Model b -> (b -> Term a) -> Handlers a -> (Term a, [Rule])
term p k hs = case p of
  Return b -> used Bound (k b)
  Bind m f -> let (t, rs) = term m (\b -> Step (f b) k hs) hs in (t, rs)
  Throw e -> case hs of
    Just h -> used IOCatchExp (h e)
    Nothing -> used Thrown (Raise e)
  RaiseAsync e -> let (t, rs) = term (Throw e) k hs in (t, RaiseAsyncRule : rs)
  Catch m h -> term m (By IOCatch . k) (Just (\e -> Step (h e) k hs))
  _ -> (Step p k hs, [])
  where
    used r t = (t, [r])

-- | All states that can follow.
data Followed = Followed [Rule] State

steps :: State -> [Followed]
steps st =
  concat $
    [step st (OnHec h handlers) here code | (h, HecState False here code handlers) <- IntMap.toList (soup st)]
      <> [step st (Loose handlers) here code | (here, (handlers, code)) <- IntMap.toList (loose st)]

-- | The HEC that runs a stack, or none.
data Runner = OnHec Int (Maybe Governing) | Loose Governing

-- | The next step of a stack that runs. There is one, since a stack is deterministic: only the order of the
-- steps of several is free.
step :: State -> Runner -> Int -> Suspended -> [Followed]
step st runner here (Suspended name t dict) = case t of
  End () -> case runner of
    OnHec h Nothing -> [Followed [InCallRet] st {soup = IntMap.delete h (soup st)}]
    OnHec h (Just _) -> [Followed [InCallRet, GovernedRet] st {soup = IntMap.delete h (soup st)}]
    Loose handlers -> comeBack handlers
  Raise e -> case runner of
    OnHec h Nothing -> [Followed [InCallThrow] (say name ("ends with " <> show e) st) {soup = IntMap.delete h (soup st)}]
    _ -> [Followed [InCallThrow] (say name ("ends with " <> show e) (goOn (End ()) st))]
  By r t' -> [Followed [r] (goOn t' st)]
  Step p k hs -> case p of
    Say x -> [Followed [] (say name x (goOn (k ()) st))]
    NewStack other code' ->
      [Followed [NewStackRule] (goOn (k s) st') {suspended = IntMap.insert s (Suspended other (Step code' End Nothing) IntMap.empty) (suspended st)}]
    NewKey a -> [Followed [NewSLSKey] (goOn (k (ModelKey s a)) st')]
    SetLocal (ModelKey i _) a -> [Followed [SetSLS] (keep (Suspended name (k ()) (IntMap.insert i (unsafeCoerce a) dict)) st)]
    InCall other code' -> [Followed [InCallRule] (newHec other code' Nothing (goOn (k ()) st))]
    InCallWith away back other code' -> [Followed [InCallWithRule] (newHec other code' (Just (Governing away back)) (goOn (k ()) st))]
    Tick h -> case IntMap.lookup h (soup after) of
      Just (HecState False there code (Just handlers)) -> [Followed [TickRule, Displace] (displace h handlers there code after)]
      _ -> [Followed [TickNop] after]
      where
        after = goOn (k ()) st
    OutCall m -> case runner of
      OnHec _ Nothing -> [Followed [OutCallRule] (goOn (Step m k hs) st)]
      OnHec h (Just handlers) -> [Followed [OutCallRule, Displace] (displace h handlers here (Suspended name outside dict) st)]
      Loose _ -> [Followed [OutCallRule] (goOn outside st)]
      where
        -- Its end needs a HEC.
        outside = Step (Bind m (\() -> Atomic (Then GetHec (\_ -> Pure ())))) k hs
    Atomic m -> case transact m of
      (Returned b, rs, st1) -> [Followed (AtReturn : rs) (goOn (k b) st1)]
      (Threw e, rs, st1) -> [Followed (AtThrow : rs) (goOn (Step (Throw e) k hs) st1)]
      (Slept, rs, st1) -> [Followed (AtSleep : rs) (asleep st1)]
      (Needs, _, _) -> returning
    Switch m -> case transact (Then GetHec (\_ -> m)) of
      (Threw e, rs, st1) -> [Followed (SwitchThrow : rs) (goOn (Step (Throw e) k hs) st1)]
      (Slept, rs, st1) -> [Followed (SwitchSleep : rs) (asleep st1)]
      (Needs, _, _) -> returning
      (Returned target, rs, st1)
        | target == here -> [Followed (SwitchSelf : rs) (goOn (k ()) st1)]
        | Just other <- IntMap.lookup target (suspended st1),
          OnHec h handlers <- runner ->
            [ Followed
                (SwitchTo : rs)
                st1
                  { soup = IntMap.insert h (HecState False target other handlers) (soup st1),
                    suspended = IntMap.insert here (Suspended name (k ()) dict) (IntMap.delete target (suspended st1))
                  }
            ]
        | otherwise -> [Followed (SwitchNotSuspended : rs) (goOn (Step (Throw Unsuspended) k hs) st)]
    _ -> let (t', rs) = term p k hs in [Followed rs (goOn t' st)]
  where
    s = next st
    st' = st {next = s + 1}
    goOn t' = keep (Suspended name t' dict)
    keep code x = case runner of
      OnHec h handlers -> x {soup = IntMap.insert h (HecState False here code handlers) (soup x)}
      Loose handlers -> x {loose = IntMap.insert here (handlers, code) (loose x)}
    asleep x = case runner of
      OnHec h handlers -> x {soup = IntMap.insert h (HecState True here (Suspended name t dict) handlers) (soup x)}
      Loose _ -> x
    returning = case runner of
      Loose handlers -> comeBack handlers
      OnHec _ _ -> []
    comeBack (Governing _ back) = case transactOn Nothing (back here) of
      (_, rs, st1) ->
        [ Followed
            (Comeback : rs)
            st1
              { loose = IntMap.delete here (loose st1),
                suspended = IntMap.insert here (Suspended name t dict) (suspended st1)
              }
        ]
    transact :: Transaction Model b -> (Result b, [Rule], State)
    transact = transactOn (case runner of OnHec h _ -> Just h; Loose _ -> Nothing)
    transactOn :: Maybe Int -> Transaction Model b -> (Result b, [Rule], State)
    transactOn h m =
      let (r, heap) = big h here dict m (Heap (variables st) (next st) [] [])
          kept = IntMap.filterWithKey (\i _ -> i >= next st) (heapVariables heap)
          rules = heapRules heap
       in case r of
            Threw e -> (Threw e, rules, st {variables = IntMap.union (variables st) kept, next = heapNext heap})
            _ ->
              let (rs, woken) = foldl wake ([], soup st) (reverse (heapWoken heap))
               in (r, rs <> rules, st {variables = heapVariables heap, next = heapNext heap, soup = woken})
    wake (rs, hecs) i = case IntMap.lookup i hecs of
      Just x | isAsleep x -> (Wakeup : rs, IntMap.insert i x {isAsleep = False} hecs)
      _ -> (WakeupNop : rs, hecs)

newHec :: String -> Program Model () -> Maybe Governing -> State -> State
newHec name p handlers st =
  st
    { soup = IntMap.insert s (HecState False (s + 1) (Suspended name (Step p End Nothing) IntMap.empty) handlers) (soup st),
      next = s + 2
    }
  where
    s = next st

-- | Take a HEC from the stack that it runs, of which this is left.
displace :: Int -> Governing -> Int -> Suspended -> State -> State
displace h handlers@(Governing away _) here code st =
  st
    { soup = IntMap.insert h (HecState False activation (Suspended "activation" (Step (Switch (away here)) End Nothing) IntMap.empty) (Just handlers)) (soup st),
      loose = IntMap.insert here (handlers, code) (loose st),
      next = activation + 1
    }
  where
    activation = next st

say :: String -> String -> State -> State
say name x st = st {said = Map.insertWith (flip (<>)) name [x] (said st)}

data Result a
  = Returned a
  | Threw Problem
  | Slept
  | -- | It has asked for its HEC, and is on none.
    Needs

data Heap = Heap {heapVariables :: IntMap Any, heapNext :: Int, heapWoken :: [Int], heapRules :: [Rule]}

-- | A transaction, in one step.
big :: Maybe Int -> Int -> IntMap Any -> Transaction Model b -> Heap -> (Result b, Heap)
big h here dict = go
  where
    go :: Transaction Model b -> Heap -> (Result b, Heap)
    go m heap = case m of
      Pure a -> (Returned a, heap)
      Then n f -> case go n heap of
        (Returned a, heap1) -> go (f a) (by PBind heap1)
        (Threw e, heap1) -> (Threw e, by PThrow heap1)
        (Slept, heap1) -> (Slept, by PSleep heap1)
        (Needs, heap1) -> (Needs, heap1)
      ThrowT e -> (Threw e, heap)
      CatchT n f -> case go n heap of
        (Threw e, heap1) -> go (f e) (by PCatchExp (undo heap heap1))
        (Slept, heap1) -> (Slept, by PCatchSleep heap1)
        (Needs, heap1) -> (Needs, heap1)
        (Returned a, heap1) -> (Returned a, by PCatch heap1)
      New a -> let i = heapNext heap in (Returned (ModelVariable i), by PNew heap {heapVariables = IntMap.insert i (unsafeCoerce a) (heapVariables heap), heapNext = i + 1})
      Get (ModelVariable i) -> (Returned (unsafeCoerce (heapVariables heap IntMap.! i)), by PRead heap)
      Put (ModelVariable i) a -> (Returned (), by PWrite heap {heapVariables = IntMap.insert i (unsafeCoerce a) (heapVariables heap)})
      GetHec -> maybe (Needs, heap) (\i -> (Returned i, by GetHEC heap)) h
      GetStack -> (Returned here, by GetStackId heap)
      GetLocal (ModelKey i a) -> case IntMap.lookup i dict of
        Just x -> (Returned (unsafeCoerce x), by GetSLS heap)
        Nothing -> (Returned a, by GetSLSDefault heap)
      Sleep -> (maybe Needs (const Slept) h, heap)
      Wake i -> (Returned (), heap {heapWoken = i : heapWoken heap})
    by r heap = heap {heapRules = r : heapRules heap}
    undo old new =
      old
        { heapVariables = IntMap.union (heapVariables old) (IntMap.filterWithKey (\i _ -> i >= heapNext old) (heapVariables new)),
          heapNext = heapNext new,
          heapRules = heapRules new
        }

-- | Take every schedule of a program, which runs on one HEC and a stack of this name.
outcomes :: String -> Program Model () -> Outcomes
outcomes name p = go (Outcomes Set.empty Set.empty 0) [newHec name p Nothing (State IntMap.empty IntMap.empty IntMap.empty IntMap.empty 0 Map.empty)]
  where
    go !acc = \case
      [] -> acc
      st : rest -> case filter private (steps st) <> filter (not . private) (steps st) of
        [] -> go acc {allOutcomes = Set.insert (said st, not (IntMap.null (soup st))) (allOutcomes acc), countSchedules = countSchedules acc + 1} rest
        -- A step that only one HEC can notice comes first, without alternatives: to do it later would
        -- be the same.
        f : fs
          | private f -> go (noted [f] acc) (after f : rest)
          | otherwise -> go (noted (f : fs) acc) (map after (f : fs) <> rest)
    after (Followed _ st) = st
    noted fs acc = acc {usedRules = foldl (\rs (Followed used _) -> foldr Set.insert rs used) (usedRules acc) fs}
    private (Followed rs _) = not (any shared rs)
    shared r = r `elem` [AtReturn, AtThrow, AtSleep, SwitchTo, SwitchSelf, SwitchThrow, SwitchSleep, SwitchNotSuspended, GovernedRet, Displace, Comeback, TickNop, OutCallRule]
