// What stands in for functions of base (stand_ins.cmm).

// For RTLD_DEFAULT.
#define _GNU_SOURCE
#include "Rts.h"

#include <dlfcn.h>

// A program that is linked dynamically takes the stand-ins from the shared library of this
// package, which is linked without the options: there __real_X is no symbol, and the original
// is X itself, of the shared library of base. Without a handler the stand-ins must still reach it.
#define ORIGINAL(symbol) extern StgClosure __real_##symbol __attribute__((weak));
ORIGINAL(base_GHCziEventziThread_threadWaitRead1_closure)
ORIGINAL(base_GHCziEventziThread_threadDelay1_closure)
ORIGINAL(base_GHCziEventziThread_closeFdWith1_closure)
ORIGINAL(base_SystemziTimeout_timeout1_closure)

#define FIND(symbol) \
  (&__real_##symbol ? (StgPtr)&__real_##symbol : (StgPtr)dlsym(RTLD_DEFAULT, #symbol))

// What the originals refer to must not be collected. Those who call them refer to the stand-ins,
// which GHC's collector does not follow to the originals; so these are roots from the start, as
// functions are that are exported to C.
static struct ForeignExportsList originals = {.n_entries = 4, .exports = {0, 0, 0, 0}};

static void __attribute__((constructor)) find_originals(void) {
  originals.exports[0] = FIND(base_GHCziEventziThread_threadWaitRead1_closure);
  originals.exports[1] = FIND(base_GHCziEventziThread_threadDelay1_closure);
  originals.exports[2] = FIND(base_GHCziEventziThread_closeFdWith1_closure);
  originals.exports[3] = FIND(base_SystemziTimeout_timeout1_closure);
  for (int which = 0; which < 4; which++)
    if (!originals.exports[which]) return;
  registerForeignExports(&originals);
}

StgClosure *weft_ghc_io_original(StgInt which) {
  return (StgClosure *)originals.exports[which];
}

static StgStablePtr handlers[4];

// The caller makes the stable pointers before, once, and never frees them.
void weft_ghc_io_install(StgInt which, StgStablePtr handler) {
  __atomic_store_n(&handlers[which], handler, __ATOMIC_RELEASE);
}

// The function that is to run: the handler, or the original while there is none.
StgClosure *weft_ghc_io_handler(StgInt which) {
  StgStablePtr handler = __atomic_load_n(&handlers[which], __ATOMIC_ACQUIRE);
  return handler ? (StgClosure *)deRefStablePtr(handler)
                 : weft_ghc_io_original(which);
}
