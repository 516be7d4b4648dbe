/* The words of the process that all transactions share: the sequence lock, the transaction that asks the
   others to wait, and the HEC of each OS thread. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* Each on a cache line of its own: all threads read both, and hardly any writes the second. */
#define LINE __attribute__((aligned(128)))

/* Even: no transaction commits. See Note [The sequence lock], Weft.Substrate.Internal.Sequence. */
LINE _Atomic int64_t weft_substrate_sequence = 0;

/* Until when the others wait with their commits, in nanoseconds; 0: not asked for. */
LINE _Atomic int64_t weft_substrate_quiet = 0;
static _Atomic(void *) quiet_owner;

/* The HEC that this OS thread carries: a stable pointer, or nothing. Its address is also the
   name of the OS thread. */
static __thread void *place;

void *weft_substrate_place(void) { return place; }
void weft_substrate_set_place(void *p) { place = p; }

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A transaction has failed several times: may it have some quiet? Twice as long each time, from 16
   microseconds to 16 milliseconds. A transaction that asks while another has it waits like all others. */
void weft_substrate_ask_quiet(int64_t failures) {
  int64_t until = atomic_load(&weft_substrate_quiet), t = now();
  int64_t length = 16000ll << (failures < 20 ? failures / 2 : 10);
  if (until != 0 && t < until && atomic_load(&quiet_owner) != &place) return;
  if (atomic_compare_exchange_strong(&weft_substrate_quiet, &until, t + length)) atomic_store(&quiet_owner, &place);
}

void weft_substrate_end_quiet(void) {
  if (atomic_load(&quiet_owner) == &place) atomic_store(&weft_substrate_quiet, 0);
}

/* Must a transaction that is about to commit wait? Called while one asks for quiet. The owner may be a
   moment late: then a commit comes between, which costs the owner one more attempt. */
int64_t weft_substrate_must_wait(void) {
  int64_t until = atomic_load(&weft_substrate_quiet);
  if (until == 0 || atomic_load(&quiet_owner) == &place) return 0;
  if (now() >= until) {
    atomic_compare_exchange_strong(&weft_substrate_quiet, &until, 0);
    return 0;
  }
  sched_yield();
  return 1;
}

void weft_substrate_os_yield(void) { sched_yield(); }
