// Stand-ins for functions of base (stand_ins.cmm).

// For RTLD_DEFAULT.
#define _GNU_SOURCE
#include "Rts.h"
#include "stand_ins.h"

#include <dlfcn.h>

// A program that is linked dynamically takes the stand-ins from the shared library of this
// package, which is linked without the options: there __real_X is no symbol, and the original
// is X itself, of the shared library of base. Without a handler the stand-ins must still reach it.
#define ORIGINAL(module, function) ORIGINAL_(module, function)
#define ORIGINAL_(module, function) \
  extern StgClosure __real_##module##_##function##_closure __attribute__((weak));
ORIGINAL(EVENT, threadWaitRead1)
ORIGINAL(EVENT, threadDelay1)
ORIGINAL(EVENT, closeFdWith1)
ORIGINAL(TIMEOUT, timeout1)

#define FIND(module, function) FIND_(module, function)
#define FIND_(module, function)                    \
  (&__real_##module##_##function##_closure           \
       ? (StgPtr)&__real_##module##_##function##_closure \
       : (StgPtr)dlsym(RTLD_DEFAULT, #module "_" #function "_closure"))

// The originals' references must not be collected. Their callers refer to the stand-ins,
// which GHC's collector does not follow to the originals; so these are roots from the start, as
// functions are that are exported to C.
static struct ForeignExportsList originals = {.n_entries = 4, .exports = {0, 0, 0, 0}};

static void __attribute__((constructor)) find_originals(void) {
  originals.exports[0] = FIND(EVENT, threadWaitRead1);
  originals.exports[1] = FIND(EVENT, threadDelay1);
  originals.exports[2] = FIND(EVENT, closeFdWith1);
  originals.exports[3] = FIND(TIMEOUT, timeout1);
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
