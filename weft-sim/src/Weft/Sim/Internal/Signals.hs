-- |
-- Description : The simulated processes' signals, and names
-- Stability   : not home
module Weft.Sim.Internal.Signals
  ( SignalTable,
    newSignalTable,
    openSignals,
    nextSignal,
    closeSignals,
    raiseSignal,
    crashSignals,

    -- * Names
    resolve,
  )
where

import Network.Socket (AddrInfo, HostName, ServiceName)
import Weft.Internal.SystemCall
import Weft.Sim.Internal.Ticket
import Weft.Sim.Internal.World

data SignalTable = SignalTable

newSignalTable :: IO SignalTable
newSignalTable = pure SignalTable

openSignals :: SignalTable -> [SignalNumber] -> Answering Signals
openSignals = undefined

nextSignal :: SignalTable -> Signals -> Answering SignalNumber
nextSignal = undefined

closeSignals :: SignalTable -> Signals -> Answering ()
closeSignals = undefined

-- | The process on a machine gets a signal. False if nobody there has subscribed to it: its
-- default effect would end the process.
raiseSignal :: SignalTable -> Machine -> SignalNumber -> IO Bool
raiseSignal = undefined

crashSignals :: SignalTable -> Machine -> IO ()
crashSignals = undefined

-- | Names of machines, @localhost@, numeric addresses; services by number.
resolve :: World -> Maybe AddrInfo -> Maybe HostName -> Maybe ServiceName -> Answering [AddrInfo]
resolve = undefined
