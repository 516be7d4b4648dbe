#include "Rts.h"

/* Does a thread wait to raise an asynchronous exception in this Haskell thread? To be
   asked by that thread itself: Note [Pending exceptions] in Weft.Internal.Core.Direct. */
HsInt weft_pending_exceptions(StgTSO *tso) {
  return (void *)tso->blocked_exceptions != (void *)END_TSO_QUEUE;
}
