{-# LANGUAGE RankNTypes #-}

-- |
-- Description : Small programs, one for each thing that the substrate promises
--
-- Each is run by the semantics, on every schedule, and by the implementation; what the
-- implementation shows has to be among what the semantics shows.
module Litmus (Litmus (..), litmus) where

import Control.Monad (replicateM_, unless, void, when)
import Weft.Substrate.Program

data Litmus = Litmus
  { litmusName :: String,
    litmusProgram :: forall w. Program w ()
  }

throwing :: String -> Transaction w a
throwing = ThrowT . Problem

-- | Sleep until a variable is true. Wakers find the HEC in the other variable.
await :: Variable w Bool -> Variable w (Maybe (Hec w)) -> Transaction w ()
await flag sleeper = do
  set <- Get flag
  unless set (GetHec >>= Put sleeper . Just >> Sleep)

raise :: Variable w Bool -> Variable w (Maybe (Hec w)) -> Transaction w ()
raise flag sleeper = Put flag True >> Get sleeper >>= mapM_ Wake

litmus :: [Litmus]
litmus =
  [ Litmus "a sum is never seen half-way" $ do
      a <- variable (1 :: Int)
      b <- variable (1 :: Int)
      InCall "mover" $ Atomic $ do
        x <- Get a
        Put a (x - 1)
        y <- Get b
        Put b (y + 1)
      x <- Atomic ((,) <$> Get a <*> Get b)
      y <- Atomic (Get b)
      Say (show (x, y)),
    Litmus "two movers, and all is kept" $ do
      a <- variable (5 :: Int)
      b <- variable (5 :: Int)
      done <- variable (0 :: Int)
      main <- Atomic GetHec
      let move n = do
            Atomic $ do
              x <- Get a
              y <- Get b
              Put a (x - n)
              Put b (y + n)
            Atomic (Get done >>= Put done . (+ 1) >> Wake main)
      InCall "one" (move 1)
      InCall "two" (move 2)
      Atomic (Get done >>= \n -> when (n < 2) Sleep)
      r <- Atomic ((,) <$> Get a <*> Get b)
      Say (show r),
    Litmus "three writes are one" $ do
      a <- variable 'a'
      b <- variable 'b'
      c <- variable 'c'
      InCall "writer" $ Atomic (Put a 'x' >> Put b 'y' >> Put c 'z' >> Put a 'w')
      r <- Atomic (mapM Get [a, b, c])
      Say r,
    Litmus "what is read twice is read once" $ do
      a <- variable (0 :: Int)
      InCall "writer" (Atomic (Put a 1))
      r <- Atomic $ do
        x <- Get a
        Put a (x + 10)
        y <- Get a
        pure (x, y)
      Say (show r),
    Litmus "a chain of reads is of one moment" $ do
      a <- variable (0 :: Int)
      b <- variable (0 :: Int)
      InCall "writer" $ do
        Atomic (Put a 1 >> Put b 1)
        Atomic (Put b 2 >> Put a 2)
      -- A transaction that saw two values that never were together would say so, committed or not.
      x <- Atomic $ do
        x <- Get a
        y <- Get b
        if x /= y then throwing "never" else pure x
      Say (show x),
    Litmus "a stack that puts itself into a variable is run once" $ do
      queue <- variable Nothing
      other <- NewStack "other" (Say "runs")
      InCall "second" $ do
        home <- Atomic GetStack
        Switch $
          Get queue >>= \case
            Nothing -> pure home
            Just s -> Put queue Nothing >> pure s
        Say "is back"
      Switch $ do
        me <- GetStack
        Put queue (Just me)
        pure other
      Say "is back",
    Litmus "who knows a stack cannot enter it before it was left" $ do
      known <- variable Nothing
      other <- NewStack "other" (Say "runs")
      Atomic (GetStack >>= Put known . Just)
      InCall "second" $
        Catch
          (Switch (Get known >>= maybe GetStack pure))
          (Say . show)
      count <- variable (0 :: Int)
      InCall "third" (Atomic (Get count >>= Put count . (+ 1)))
      Catch
        ( Switch $ do
            n <- Get count
            Put count (n + 10)
            pure other
        )
        (Say . show)
      n <- Atomic (Get count)
      Say (show n),
    Litmus "a sleep and its wake-up" $ do
      flag <- variable False
      sleeper <- variable Nothing
      InCall "waker" (Atomic (raise flag sleeper))
      Atomic (await flag sleeper)
      Say "awake",
    Litmus "a wake-up by a thread that has only read that one sleeps" $ do
      go <- variable False
      main <- Atomic GetHec
      InCall "waker" $ do
        Atomic (Put go True)
        Atomic (Wake main)
      x <- Atomic (Get go >>= \g -> unless g Sleep >> pure 'x')
      Say [x],
    Litmus "a wake-up is for one sleep" $ do
      flag <- variable (0 :: Int)
      sleeper <- Atomic GetHec
      InCall "waker" $ do
        Atomic (Put flag 1 >> Wake sleeper)
        Atomic (Put flag 2 >> Wake sleeper)
      Atomic (Get flag >>= \n -> when (n < 1) Sleep)
      n <- Atomic (Get flag)
      Atomic (Get flag >>= \m -> when (m < 2) Sleep)
      Say (if n > 2 then "never" else "awake"),
    Litmus "who gives up has woken nobody" $ do
      runs <- variable (0 :: Int)
      main <- Atomic GetHec
      InCall "waker" $ Catch (Atomic (Wake main >> throwing "no")) (\_ -> pure ())
      Atomic (Get runs >>= \n -> Put runs (n + 1) >> when (n == 0) Sleep)
      x <- Atomic (Get runs)
      Say (show x),
    Litmus "to wake who does not sleep does nothing later" $ do
      me <- Atomic GetHec
      Atomic (Wake me)
      n <- variable (0 :: Int)
      Atomic (Get n >>= \x -> Put n (x + 1) >> when (x == 0) Sleep)
      Say "woken",
    Litmus "sleep commits what was written, through a catch" $ do
      seen <- variable (0 :: Int)
      sleeper <- Atomic GetHec
      InCall "watcher" $ do
        n <- Atomic (Get seen)
        when (n == 1) (Atomic (Wake sleeper))
        Say (show n)
      n <- Atomic $ do
        n <- Get seen
        Put seen (n + 1)
        CatchT (if n == 0 then Sleep else pure n) (\_ -> pure 100)
      Say (show n),
    Litmus "a catch undoes what was written, and keeps what is new" $ do
      v <- variable (0 :: Int)
      other <- variable 'o'
      r <- Atomic $ do
        w <- New (5 :: Int)
        Put w 6
        u <- CatchT (Put v 1 >> Put w 7 >> Get other >> New 'u' >>= \u -> Put u 'x' >> throwing "no") (\_ -> New 'h')
        (,,) <$> Get v <*> Get w <*> Get u
      x <- Atomic (Get v)
      Say (show (r, x)),
    Litmus "a handler reads what was written before, as the failed part has" $ do
      a <- variable (1 :: Int)
      b <- variable 'b'
      r <- Atomic $ do
        _ <- Get b
        Put a 2
        CatchT (Get a >>= \x -> throwing (show x)) (\e -> Get a >>= \x -> pure (show (e, x)))
      Say r,
    Litmus "what a failed part has read is a condition" $ do
      a <- variable (0 :: Int)
      b <- variable (0 :: Int)
      out <- variable (0 :: Int)
      InCall "writer" $ do
        Atomic (Put a 1)
        x <- Atomic (Get out)
        Atomic (Put b (x + 1))
      r <- Atomic $ do
        x <- CatchT (Get a >>= \x -> if x == 0 then throwing "none" else pure x) (\_ -> pure 100)
        y <- Get b
        Put out 10
        pure (x, y)
      z <- Atomic (Get b)
      Say (show (r, z)),
    Litmus "catches inside of catches" $ do
      a <- variable (0 :: Int)
      InCall "writer" (Atomic (Put a 1))
      r <- Atomic $ do
        x <-
          CatchT
            ( do
                y <- CatchT (Get a >>= \y -> Put a 50 >> if y == 0 then throwing "inner" else pure y) (\_ -> Get a)
                _ <- CatchT (pure ()) (\_ -> pure ())
                Put a 60
                throwing (show y)
            )
            (\e -> Get a >>= \z -> pure (show (e, z)))
        y <- Get a
        pure (x, y)
      Say (show r),
    Litmus "what a transaction throws comes out of it, and nothing else" $ do
      v <- variable (0 :: Int)
      Catch (Atomic (Put v 1 >> throwing "out")) (Say . show)
      x <- Atomic (Get v)
      Say (show x)
      Catch (Say "no exception") (\_ -> pure ())
      Throw (Problem "end"),
    Litmus "a switch that throws has no effect but what it allocated" $ do
      v <- variable (0 :: Int)
      t <- NewStack "target" (Say "runs")
      Catch (Switch (Put v 1 >> throwing "no" >> pure t)) (Say . show)
      x <- Atomic (Get v)
      Say (show x)
      Switch (pure t),
    Litmus "a switch that sleeps" $ do
      ready <- variable Nothing
      main <- Atomic GetHec
      InCall "giver" $ do
        t <- NewStack "target" (Say "runs")
        Atomic (Put ready (Just t) >> Wake main)
      Switch (Get ready >>= maybe Sleep pure),
    Litmus "to oneself, back, and to a stack that has ended" $ do
      Switch GetStack
      Say "here"
      back <- Atomic GetStack
      t <- NewStack "t" (Say "in t" >> Switch (pure back))
      Switch (pure t)
      Say "back"
      u <- NewStack "u" (Switch (pure back) >> Say "u again")
      Switch (pure u)
      Catch (Switch (pure u)) (Say . show),
    Litmus "two switch to one stack" $ do
      t <- NewStack "t" (Say "runs")
      InCall "second" (Catch (Switch (pure t)) (Say . show))
      Catch (Switch (pure t)) (Say . show),
    Litmus "state of each stack" $ do
      k <- NewKey 'a'
      SetLocal k 'b'
      me <- Atomic GetStack
      t <- NewStack "t" $ do
        x <- Atomic (GetLocal k)
        SetLocal k 'c'
        y <- Atomic (GetLocal k)
        Say [x, y]
        Switch (pure me)
      Switch (pure t)
      z <- Atomic (GetLocal k)
      Say [z],
    Litmus "raised here, caught here" $ do
      Catch (RaiseAsync (Problem "async")) (Say . show)
      Say "on",
    Litmus "two queues between two HECs" $ do
      q <- variable []
      let hand = do
            me <- GetStack
            Get q >>= \case
              [] -> pure me
              t : ts -> Put q (ts <> [me]) >> pure t
      t <- NewStack "t" (Say "1" >> Switch hand >> Say "2")
      Atomic (Put q [t])
      InCall "second" (Switch hand >> Say "ends")
      Switch hand
      Say "ends",
    Litmus "a displaced stack comes back, and goes on where it was" $ do
      w <- away
      InCallWith (displacing w) (returning w) "worker" $ do
        knows w
        Atomic GetHec >>= Tick
        n <- Atomic (GetHec >> Get (isAway w))
        Say (show n)
        Switch GetStack
        Say "ends",
    Litmus "what is displaced twice comes back twice" $ do
      w <- away
      count <- variable (0 :: Int)
      InCallWith (displacing w) (\s -> Get count >>= Put count . (+ 1) >> returning w s) "worker" $ do
        knows w
        Atomic (void GetHec)
        n <- Atomic (Get count)
        Say (if n > 2 then "never" else "ends")
      ticks w 2,
    Litmus "a HEC that sleeps is not displaced" $ do
      w <- away
      flag <- variable False
      InCallWith (displacing w) (returning w) "worker" $ do
        knows w
        Atomic (Get flag >>= \x -> unless x Sleep)
        Say "awake"
      ticks w 1
      Atomic (Put flag True >> Get (itsHec w) >>= mapM_ Wake),
    Litmus "who was displaced cannot be entered before it has come back" $ do
      w <- away
      wasAway <- variable False
      InCallWith (\s -> Put wasAway True >> Wake (itsClock w) >> displacing w s) (returning w) "worker" $ do
        knows w
        Atomic GetHec >>= Tick
        Atomic (void GetHec)
        Say "ends"
      Atomic (Get wasAway >>= \x -> unless x Sleep)
      Catch
        (Switch (Get (isAway w) >>= \x -> if x then Get (itsStack w) >>= maybe GetStack pure else GetStack))
        (Say . show),
    Litmus "who switches and is displaced switches later" $ do
      w <- away
      t <- NewStack "t" $ do
        x <- Atomic (GetHec >> Get (isAway w))
        Say (show x)
        Switch (nextOf w)
      InCallWith (displacing w) (returning w) "worker" $ do
        knows w
        Switch $ do
          me <- GetStack
          Get (itsQueue w) >>= Put (itsQueue w) . (<> [me])
          pure t
        Say "ends"
      ticks w 1,
    Litmus "an out-call gives the HEC away, and takes one" $ do
      w <- away
      done <- variable (0 :: Int)
      t <- NewStack "t" $ do
        n <- Atomic (Get done)
        Say (show n)
        Switch (nextOf w)
      InCallWith (displacing w) (returning w) "worker" $ do
        knows w
        Atomic (Put (itsQueue w) [t])
        OutCall (Atomic (Put done 1))
        x <- Atomic (GetHec >> Get (isAway w))
        Say (show x)
      OutCall (Say "without handlers")
  ]

-- | A HEC with handlers: those that are ready, itself, the stack it began with, whether that is away, and the HEC that
-- makes it tick.
data Away w = Away
  { itsQueue :: Variable w [Stack w],
    itsHec :: Variable w (Maybe (Hec w)),
    itsStack :: Variable w (Maybe (Stack w)),
    isAway :: Variable w Bool,
    itsClock :: Hec w
  }

away :: Program w (Away w)
away = Away <$> variable [] <*> variable Nothing <*> variable Nothing <*> variable False <*> Atomic GetHec

knows :: Away w -> Program w ()
knows w = Atomic $ do
  GetHec >>= Put (itsHec w) . Just
  GetStack >>= Put (itsStack w) . Just
  Wake (itsClock w)

ticks :: Away w -> Int -> Program w ()
ticks w n = Atomic (Get (itsHec w) >>= maybe Sleep pure) >>= replicateM_ n . Tick

nextOf :: Away w -> Transaction w (Stack w)
nextOf w =
  Get (itsQueue w) >>= \case
    [] -> Sleep
    t : ts -> Put (itsQueue w) ts >> pure t

displacing :: Away w -> Stack w -> Transaction w (Stack w)
displacing w _ = Put (isAway w) True >> nextOf w

returning :: Away w -> Stack w -> Transaction w ()
returning w s = do
  Put (isAway w) False
  Get (itsQueue w) >>= Put (itsQueue w) . (<> [s])
  Get (itsHec w) >>= mapM_ Wake
