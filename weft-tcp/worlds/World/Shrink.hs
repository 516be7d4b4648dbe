-- |
-- Description : The smallest world that goes wrong in the same way
--
-- One thing after the other is made simpler, as long as something is wrong: what the link does, what
-- users do, options; at last packets are spared one by one.
module World.Shrink (shrunk, report) where

import Data.IntSet qualified as IntSet
import Data.Word (Word64)
import Weft.Tcp.Congestion (controlName, newReno)
import Weft.Tcp.Connection
import Weft.Tcp.Sequence (Seq (..))
import World
import World.Plan
import World.Script

-- | A simpler plan that goes wrong, and how; the same if it is simple.
shrunk :: Mistake -> Plan -> Wrong -> (Plan, Wrong)
shrunk mistake = go
  where
    go plan wrong = case [(p, w) | p <- simpler plan <> sparing plan wrong, Left w <- [runWorld mistake p], sameKind w wrong] of
      (p, w) : _ -> go p w
      [] -> (plan, wrong)
    -- Numbers in it may differ.
    sameKind a b = kind a == kind b
    kind = takeWhile (`notElem` ['0' .. '9']) . drop 1 . dropWhile (/= ':') . (':' :) . wrongWhat

sparing :: Plan -> Wrong -> [Plan]
sparing plan wrong = [plan {planSpared = IntSet.insert n (planSpared plan)} | Sent _ _ n _ what <- reverse (wrongLog wrong), not (null what)]

simpler :: Plan -> [Plan]
simpler p =
  [p {planLink = l} | l <- links (planLink p)]
    <> [p {planBoth = False} | planBoth p]
    <> [p {planTalks = False} | planTalks p]
    <> [p {planBreak = Nothing} | not (null (planBreak p))]
    <> concat [[setSide s (const x) p | x <- sides (planOf s p)] | s <- [A, B]]
  where
    links l =
      [l {linkMtu = maxBound} | linkMtu l < maxBound]
        <> [l {linkLoss = 0} | linkLoss l > 0]
        <> [l {linkTwice = 0} | linkTwice l > 0]
        <> [l {linkBad = 0} | linkBad l > 0]
        <> [l {linkMark = 0} | linkMark l > 0]
        <> [l {linkJitter = 1} | linkJitter l > 1]
        <> [l {linkByte = 0} | linkByte l > 0]
        <> [l {linkDelay = 1000} | linkDelay l /= 1000]
    sides x =
      [x {sideBytes = 0} | sideBytes x > 0]
        <> [x {sideBytes = sideBytes x `div` 2} | sideBytes x > 1]
        <> [x {sideBytes = sideBytes x - 1} | sideBytes x > 1, sideBytes x < 20]
        <> [x {sideSlow = 0} | sideSlow x > 0]
        <> [x {sideIss = Seq 0} | sideIss x /= Seq 0]
        <> [x {sideSettings = s} | s <- settings (sideSettings x)]
    settings s =
      [s {settingScaling = False} | settingScaling s]
        <> [s {settingTimestamps = False} | settingTimestamps s]
        <> [s {settingSack = False} | settingSack s]
        <> [s {settingEcn = NoEcn} | settingEcn s /= NoEcn]
        <> [s {settingTailProbe = False} | settingTailProbe s]
        <> [s {settingPathProbing = False} | settingPathProbing s]
        <> [s {settingControl = newReno} | controlName (settingControl s) /= "newreno"]
        <> [s {settingNoDelay = True} | not (settingNoDelay s)]
        <> [s {settingMss = 1460} | settingMss s /= 1460]
        <> [s {settingReceiveBuffer = 65535} | settingReceiveBuffer s /= 65535]
        <> [s {settingReceiveLimit = 0} | settingReceiveLimit s > 0]

-- | The report on the world of a seed that goes wrong: the fault, and a script for packetdrill of the
-- smallest world that goes wrong in that way, as the end sees it where it does.
report :: Mistake -> Word64 -> Wrong -> String
report mistake seed wrong = unlines ["seed " <> show seed <> ": " <> wrongWhat wrong <> ", at " <> show (wrongSide wrong)] <> script plan smaller
  where
    (plan, smaller) = shrunk mistake (drawPlan seed) wrong
