/* Carriers and the monitor: see Weft.Internal.Os.Control. */
#ifndef WEFT_MONITOR_H
#define WEFT_MONITOR_H

#include "HsFFI.h"

#include <stdint.h>

/* The shared words, in lines of 64 bytes; Weft.Internal.Os.Control has the same
   layout. First one line for each carrier (each worker's first, then the pool's, then
   what may be used in addition when the run is to end), then one for each worker, then one for the
   monitor (whether it sleeps, how many carriers there are, and how many of them were
   blocked at the last look). */
enum { WEFT_LINE = 8, WEFT_USER = 0, WEFT_MARK = 1, WEFT_NUMBER = 2, WEFT_AWAKE = 0, WEFT_CARRIERS = 1, WEFT_BLOCKED = 2 };

/* The carriers beyond the limit while the threads of a run are being ended; then one for each
   worker. */
enum { WEFT_RESERVE = 64 };

/* In a carrier's MARK: */
enum { WEFT_PROPOSED = 1, WEFT_ATTEND = 2, WEFT_LOST = 4 };

typedef struct weft_monitor weft_monitor;

/* The function is an `Int -> Int -> IO ()` of Haskell: be the carrier of this worker, with
   this line. With worker -1: all workers have slept for a while. -2: say in the word
   WEFT_BLOCKED how many carriers are blocked. -3: a worker has been stuck for long, and
   there is no carrier left for it, or the system had no OS thread for one (the second
   argument is its errno). `few` may be busy, and all that are blocked in addition, up to
   `most`. Once it has started, the monitor owns the pointer and frees it. */
weft_monitor *weft_monitor_start(int workers, int64_t *words, int64_t tick_ns, int64_t longest_ns,
                                 int64_t patience_ns, int64_t linger_ns, int few, int most,
                                 HsStablePtr carry);
void weft_monitor_wake(weft_monitor *m);
void weft_monitor_ending(weft_monitor *m, int more);
void weft_monitor_stop(weft_monitor *m);

#endif
