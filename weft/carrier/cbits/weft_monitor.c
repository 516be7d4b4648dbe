/* The monitor of a run, and the OS threads that carry its workers.
 *
 * One OS thread looks at every worker now and then (Note [When the monitor looks]). A
 * worker whose carrier has been in user code, in one and the same dispatch, for longer
 * than the patience is given to another carrier. The protocol between a carrier and the monitor is Note [Takeover]
 * of Weft.Internal.Os.Control; this file has the monitor's side of it, and the pool of
 * carriers. No function here holds a lock while Haskell code runs. */
#define _GNU_SOURCE
#include "weft_monitor.h"

#include "Rts.h"

#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifdef __GLIBC__
/* glibc loads this library when an OS thread is first ended by pthread_exit or cancelled, and
   ends the process if it cannot: as when all descriptors are taken. So it is loaded while
   there are some. Where there is none, as in a static program elsewhere, nothing is lost. */
__attribute__((constructor)) static void load_early(void) { dlopen("libgcc_s.so.1", RTLD_NOW); }
#endif

typedef _Atomic int64_t word;

/* A place for a carrier of the pool. */
typedef struct place {
  weft_monitor *monitor;
  enum { NOBODY, IDLE, OFFERED, BUSY } state;
  int worker;             /* what is offered */
  pthread_cond_t changed; /* a job was offered, or the run is over */
} place;

struct weft_monitor {
  int workers;
  word *words;
  int expedited; /* is there a membarrier? */
  int64_t tick_ns, longest_ns; /* the shortest and the longest time between two looks */
  int64_t patience_ns, linger_ns;
  int most; /* places */
  int few;  /* as many carriers as may be busy before the monitor looks what they do */
  HsStablePtr carry;

  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t left;  /* a carrier has ended */
  pthread_cond_t ended; /* the phase is no longer RUNNING */
  /* Under the lock. */
  enum { RUNNING, STOPPING, STOPPED } phase;
  int carriers;  /* places that are not NOBODY */
  int busy;      /* places that are OFFERED or BUSY */
  int allowed;   /* how many of the places may be busy now */
  int limit;     /* how many may be, at most; more when the run is to end */
  int ending;    /* the limit has been raised, because the run is to end */
  int highest;   /* no place from here on has ever been used */
  place *places; /* as many as there may be carriers in the pool */

  /* The monitor's thread only. */
  struct seen {
    int64_t line;  /* that of the carrier that owns the worker */
    int64_t user;  /* what in_user said of it */
    int64_t since; /* since when */
    int64_t number; /* the last dispatch in which it was seen in user code */
  } *seen;
  int64_t reviewed;   /* when the monitor last looked what the carriers do */
  int told;           /* has the operator been told that there is no carrier left? */
  int64_t tell_after; /* and not before this again */
  int granted;        /* carriers that may be started before we look for room again */
  int refused;        /* why no carrier may be started now: an errno, or 0 */
  int64_t ask_after;  /* until then */
};

static int64_t now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int carrier_lines(weft_monitor *m) { return m->workers + m->most; }

static word *carrier_word(weft_monitor *m, int64_t line, int which) {
  return &m->words[line * WEFT_LINE + which];
}

/* The number of the dispatch whose user code the carrier of this line is in, or 0. In this order:
   Note [Takeover] in Weft.Internal.Os.Control. */
static int64_t in_user(weft_monitor *m, int64_t line) {
  return atomic_load(carrier_word(m, line, WEFT_USER)) ? atomic_load(carrier_word(m, line, WEFT_NUMBER)) : 0;
}

static word *worker_word(weft_monitor *m, int worker, int which) {
  return &m->words[(carrier_lines(m) + worker) * WEFT_LINE + which];
}

static word *asleep_word(weft_monitor *m) {
  return &m->words[(carrier_lines(m) + m->workers) * WEFT_LINE];
}

/* For the threads that count carriers; under the lock. When the run is over the words may be gone. */
static void say_carriers(weft_monitor *m) {
  if (m->phase != STOPPED) atomic_store(asleep_word(m) + WEFT_CARRIERS, m->carriers);
}

/* Every carrier passes a full memory barrier before this returns. */
static void barrier(void) {
  if (syscall(__NR_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
    atomic_thread_fence(memory_order_seq_cst);
}

static void new_cond(pthread_cond_t *c) {
  pthread_condattr_t a;
  pthread_condattr_init(&a);
  pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
  pthread_cond_init(c, &a);
  pthread_condattr_destroy(&a);
}

/* Freed by its last user: the run or a carrier that came back late. With it goes
   the function that carriers are called through, and all of the run that hangs on it. */
static void release(weft_monitor *m) {
  if (m->carry) hs_free_stable_ptr(m->carry);
  pthread_mutex_destroy(&m->lock);
  pthread_cond_destroy(&m->left);
  pthread_cond_destroy(&m->ended);
  for (int i = 0; i < m->highest; i++) pthread_cond_destroy(&m->places[i].changed);
  free(m->seen);
  free(m->places);
  free(m);
}

/* Call the function of the run; the carrier is a bound OS thread in it, and GHC's thread is
   masked from its first moment to its last: one that unmasked at its end would be killed by
   what others had thrown at it meanwhile, and the process with it. What a foreign export
   would do is not masked; and at the end of the program GHC stops the calls that are still
   in progress, as that of a carrier whose thread is stuck, of which a foreign export
   complains on standard error. */
static void call_carry(weft_monitor *m, int worker, int64_t line) {
  Capability *cap = rts_lock();
  HaskellObj function = rts_apply(cap, (HaskellObj)deRefStablePtr(m->carry), rts_mkInt(cap, worker));
  HsStablePtr action = getStablePtr((StgPtr)rts_apply(cap, function, rts_mkInt(cap, line)));
  rts_evalStableIO(&cap, action, NULL);
  if (rts_getSchedStatus(cap) == Interrupted) {
    rts_unlock(cap);
    pthread_exit(NULL);
  }
  rts_checkSchedStatus("weft", cap);
  hs_free_stable_ptr(action); /* while GHC cannot end: it waits for the holder of a capability */
  rts_unlock(cap);
}

static void *carrier_main(void *argument) {
  place *p = argument;
  weft_monitor *m = p->monitor;
  pthread_mutex_lock(&m->lock);
  for (;;) {
    if (p->state == OFFERED) {
      int worker = p->worker;
      p->state = BUSY;
      pthread_mutex_unlock(&m->lock);
      call_carry(m, worker, m->workers + (p - m->places));
      pthread_mutex_lock(&m->lock);
      p->state = IDLE;
      m->busy--;
    }
    int64_t until = now() + m->linger_ns;
    struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
    int late = 0;
    while (p->state == IDLE && m->phase == RUNNING && late != ETIMEDOUT)
      late = pthread_cond_timedwait(&p->changed, &m->lock, &t);
    if (p->state == IDLE) break;
  }
  /* GHC keeps a record of each OS thread that has called it. No thread waits for a carrier that
     is late (Note [The last of the carriers]): GHC may be ending, and its record stays. */
  if (m->phase != STOPPED) hs_thread_done();
  p->state = NOBODY;
  int last = --m->carriers == 0 && m->phase == STOPPED;
  say_carriers(m);
  pthread_cond_signal(&m->left);
  pthread_mutex_unlock(&m->lock);
  if (last) release(m);
  return NULL;
}

/* A place whose carrier waits for a job, or one for a new carrier; under the lock. */
static place *vacancy(weft_monitor *m) {
  place *empty = NULL;
  if (m->busy >= m->allowed) return NULL;
  for (int i = 0; i < m->highest; i++) {
    if (m->places[i].state == IDLE) return &m->places[i];
    if (m->places[i].state == NOBODY && !empty) empty = &m->places[i];
  }
  if (!empty && m->highest < m->most) {
    empty = &m->places[m->highest++];
    empty->monitor = m;
    new_cond(&empty->changed);
  }
  return empty;
}

static void *stand(void *gate) {
  pthread_mutex_lock(gate);
  pthread_mutex_unlock(gate);
  return NULL;
}

/* Has the system room for more OS threads than we are about to start? The last must not be
   ours: GHC's run-time system ends the process if it cannot have one. All are started at the
   same time, and end. Answers an errno, or 0. */
enum { GRANT = 8, ROOM = 2 * GRANT };

static int look_for_room(void) {
  pthread_t all[ROOM];
  pthread_attr_t a;
  pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
  int some = 0, failure = 0;
  pthread_attr_init(&a);
  pthread_attr_setstacksize(&a, 65536);
  pthread_mutex_lock(&gate);
  while (some < ROOM && failure == 0) {
    failure = pthread_create(&all[some], &a, stand, &gate);
    if (failure == 0) some++;
  }
  pthread_mutex_unlock(&gate);
  for (int i = 0; i < some; i++) pthread_join(all[i], NULL);
  pthread_attr_destroy(&a);
  return failure;
}

/* Before a carrier is started that is not one of the first. */
static void ask_for_room(weft_monitor *m, int64_t time) {
  if (m->granted > 0 || time < m->ask_after) return;
  m->refused = look_for_room();
  m->granted = m->refused ? 0 : GRANT;
  m->ask_after = m->refused ? time + 10000000000 : 0;
}

/* Answers why there is no carrier for it: NO_PLACE, or why the system has no OS thread. */
enum { NO_PLACE = -1 };

static int take_over(weft_monitor *m, int worker) {
  int failure = 0;
  struct seen *s = &m->seen[worker];
  word *mark = carrier_word(m, s->line, WEFT_MARK);
  pthread_mutex_lock(&m->lock);
  place *p = vacancy(m);
  if (p && p->state == NOBODY && m->refused) {
    failure = m->refused;
    p = NULL;
  } else if (p && p->state == NOBODY) {
    pthread_t t;
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
    p->state = IDLE;
    failure = pthread_create(&t, &a, carrier_main, p);
    if (failure == 0) {
      m->carriers++;
      m->granted--;
      say_carriers(m);
    } else {
      p->state = NOBODY;
      p = NULL;
    }
    pthread_attr_destroy(&a);
  } else if (!p) {
    failure = NO_PLACE;
  }
  if (p) {
    int64_t held = atomic_load(mark), proposed = held | WEFT_PROPOSED;
    if (atomic_compare_exchange_strong(mark, &held, proposed)) {
      barrier();
      /* If it is back, it may have cleared the mark itself. */
      int stuck = in_user(m, s->line) == s->user;
      if (atomic_compare_exchange_strong(mark, &proposed, stuck ? WEFT_LOST : held) && stuck) {
        s->line = m->workers + (p - m->places);
        s->user = 0;
        atomic_store(carrier_word(m, s->line, WEFT_USER), 0);
        atomic_store(carrier_word(m, s->line, WEFT_MARK), 0);
        p->worker = worker;
        p->state = OFFERED;
        m->busy++;
        pthread_cond_signal(&p->changed);
      }
    }
  }
  pthread_mutex_unlock(&m->lock);
  return failure;
}

/* More than a few carriers are busy: Haskell counts those that GHC knows to be blocked, which
   keep no processor busy, and the limit rises by their number. */
static void review(weft_monitor *m, int64_t time) {
  call_carry(m, -2, 0);
  int64_t blocked = atomic_load(asleep_word(m) + WEFT_BLOCKED);
  pthread_mutex_lock(&m->lock);
  m->allowed = m->few + blocked < m->limit ? m->few + (int)blocked : m->limit;
  pthread_mutex_unlock(&m->lock);
  m->reviewed = time;
}

/* A worker is stuck. Some carriers are counted again after a while, and a few milliseconds
   after there was none for it. */
static int rescue(weft_monitor *m, int worker, int64_t time) {
  pthread_mutex_lock(&m->lock);
  int many = m->busy >= m->few, full = m->busy >= m->allowed, some = m->carriers >= GRANT, ending = m->ending;
  pthread_mutex_unlock(&m->lock);
  if (ending) {
    m->refused = 0; /* what was kept free is for this */
  } else if (some || m->refused) {
    ask_for_room(m, time);
  }
  if (many && time - m->reviewed >= (full ? 5000000 : 100000000)) review(m, time);
  return take_over(m, worker);
}

/* A worker has been stuck for half a second, and there is no carrier for it. Told once, until
   every worker has one, and not more often than every ten seconds. */
static void tell(weft_monitor *m, int failure, int64_t time) {
  if (m->told || time < m->tell_after) return;
  m->told = 1;
  m->tell_after = time + 10000000000;
  call_carry(m, -3, failure == NO_PLACE ? 0 : failure);
}

static void futex(word *w, int op, int64_t value, const struct timespec *limit) {
  syscall(__NR_futex, w, op, (int32_t)value, limit, NULL, 0);
}

/* Without a membarrier a worker that wakes may see too late that we sleep. */
static const struct timespec now_and_then = {.tv_sec = 0, .tv_nsec = 50000000};

static int all_asleep(weft_monitor *m) {
  for (int w = 0; w < m->workers; w++)
    if (atomic_load(worker_word(m, w, WEFT_AWAKE))) return 0;
  return 1;
}

static int is_running(weft_monitor *m) {
  pthread_mutex_lock(&m->lock);
  int running = m->phase == RUNNING;
  pthread_mutex_unlock(&m->lock);
  return running;
}

/* Wait until this time, or until the run is to end. Does it go on? */
static int pause_until(weft_monitor *m, int64_t until) {
  struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
  int late = 0;
  pthread_mutex_lock(&m->lock);
  while (m->phase == RUNNING && late != ETIMEDOUT) late = pthread_cond_timedwait(&m->ended, &m->lock, &t);
  int running = m->phase == RUNNING;
  pthread_mutex_unlock(&m->lock);
  return running;
}

/* Note [When the monitor looks]
   A look costs a worker that is busy some 15 microseconds of its processor, so the monitor
   looks often only while there is a reason. After a look that found a worker *slow* it looks
   again after a tick; after any other it waits twice as long as before, up to the longest
   pause, eight milliseconds. A worker is slow if it is in user code and makes fewer than
   BRISK dispatches in a millisecond, or none since the last look: it is stuck, or its threads
   compute for long and its slices are to be ended early (ATTEND).

   A stuck worker is not missed. in_user says one number n of it from some moment S on, and the
   monitor does not sleep (below). The first look after S, at A, is at most the longest pause
   later, finds n, and notes A. Each look after that finds n again, so the worker is slow, and
   is given away by the first that is at least the patience after A. The next look is at most
   the longest pause after A; if that is sooner than the patience, it is a tick at a time from
   there. So the worker's other threads are delayed by at most
     longest + max(longest, patience + tick) = 8 + max(8, 3.5 + 1.5) = 16 milliseconds,
   and by what the system and GHC take to let the new carrier run.

   When all workers sleep for a while the monitor does, too, without a limit. Nothing is
   missed: a worker says that it is awake before it runs a thread, and wakes a monitor that
   it finds asleep; a membarrier orders the stores and loads of the two (without one the
   monitor wakes every 50 milliseconds). Then the first look is a tick later. A stuck worker
   does not say that it sleeps, and so keeps the monitor awake. */
enum { BRISK = 4 };

static int is_slow(int64_t dispatches, int64_t elapsed) { return dispatches * 1000000 < BRISK * elapsed; }

static void *monitor_main(void *argument) {
  weft_monitor *m = argument;
  int64_t quiet_since = now(), looked = quiet_since, pause = m->tick_ns;
  while (pause_until(m, now() + pause)) {
    int64_t time = now();
    int awake = 0, slow = 0, failure = 0, for_long = 0;
    for (int w = 0; w < m->workers; w++) {
      struct seen *s = &m->seen[w];
      int64_t user = in_user(m, s->line);
      awake |= atomic_load(worker_word(m, w, WEFT_AWAKE)) != 0;
      if (user == 0 || user != s->user) {
        s->user = user;
        s->since = time;
      } else if (time - s->since >= m->patience_ns) {
        int why = rescue(m, w, time);
        if (why) failure = why;
        if (why && time - s->since >= 500000000) for_long = 1;
      }
      if (user != 0) {
        slow |= is_slow(user - s->number, time - looked);
        s->number = user;
        /* A worker that runs threads looks around after each look of ours. */
        int64_t unmarked = 0;
        atomic_compare_exchange_strong(carrier_word(m, s->line, WEFT_MARK), &unmarked, WEFT_ATTEND);
      }
    }
    looked = time;
    pause = slow ? m->tick_ns : pause < m->longest_ns / 2 ? 2 * pause : m->longest_ns;
    if (for_long) tell(m, failure, time);
    if (!failure) m->told = 0;
    if (awake) {
      quiet_since = time;
    } else if (time - quiet_since > 25000000) {
      /* Nothing to watch: sleep until a worker wakes. The worker says that it is
         awake and then looks whether we sleep; we say that we sleep and then look
         whether one is awake. The thread that ends the run does the same: it changes the phase and
         then wakes us; we say that we sleep and then look at the phase. (The workers
         of a run that has ended are asleep, too.) First the run looks whether it is
         stuck for ever. */
      atomic_store(asleep_word(m), 1);
      barrier();
      if (is_running(m) && all_asleep(m)) call_carry(m, -1, 0);
      while (atomic_load(asleep_word(m)) && is_running(m) && all_asleep(m)) futex(asleep_word(m), FUTEX_WAIT_PRIVATE, 1, m->expedited ? NULL : &now_and_then);
      atomic_store(asleep_word(m), 0);
      quiet_since = looked = now();
      pause = m->tick_ns;
    }
  }
  hs_thread_done();
  return NULL;
}

weft_monitor *weft_monitor_start(int workers, int64_t *words, int64_t tick_ns, int64_t longest_ns,
                                 int64_t patience_ns, int64_t linger_ns, int few, int most,
                                 HsStablePtr carry) {
  weft_monitor *m = calloc(1, sizeof *m);
  if (!m) return NULL;
  m->seen = calloc((size_t)workers, sizeof *m->seen);
  m->most = most + WEFT_RESERVE + workers;
  m->places = calloc((size_t)m->most, sizeof *m->places);
  m->workers = workers;
  m->words = (word *)words;
  m->tick_ns = tick_ns;
  m->longest_ns = longest_ns;
  m->patience_ns = patience_ns;
  m->linger_ns = linger_ns;
  m->few = few < most ? few : most;
  m->limit = most;
  m->allowed = m->few;
  m->carry = carry;
  for (int w = 0; m->seen && w < workers; w++) m->seen[w].line = w;
  pthread_mutex_init(&m->lock, NULL);
  new_cond(&m->left);
  new_cond(&m->ended);
  m->expedited = syscall(__NR_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
  if (!m->seen || !m->places || pthread_create(&m->thread, NULL, monitor_main, m) != 0) {
    m->carry = NULL; /* still the caller's */
    release(m);
    return NULL;
  }
  pthread_setname_np(m->thread, "weft-monitor");
  return m;
}

void weft_monitor_wake(weft_monitor *m) {
  atomic_store(asleep_word(m), 0);
  futex(asleep_word(m), FUTEX_WAKE_PRIVATE, 1, NULL);
}

/* The run is to end: raise the limit by this number of carriers, a reserve with which even at the
   limit a worker whose thread is stuck cancels its others; and when that is over one for
   each worker, with which it is stopped. */
void weft_monitor_ending(weft_monitor *m, int more) {
  pthread_mutex_lock(&m->lock);
  m->ending = 1;
  m->limit += more;
  m->few = m->limit;
  m->allowed = m->limit;
  pthread_mutex_unlock(&m->lock);
}

/* Note [The last of the carriers]
   A run may be the program's last act, after which GHC ends. A carrier that then still calls
   GHC ends the process with an error. So the end of a run waits for carriers that are on
   their way out: those that have no job, and those that are in Weft's own code, which is
   short. Not for those whose thread is stuck in user code: they are late, and call GHC no
   more when they come back, but for a free. The time limit is for a machine that does not
   let them run. */
static int on_their_way(weft_monitor *m) {
  for (int i = 0; i < m->highest; i++) {
    place *p = &m->places[i];
    if (p->state == IDLE || p->state == OFFERED) return 1;
    if (p->state == BUSY && atomic_load(carrier_word(m, m->workers + i, WEFT_USER)) == 0) return 1;
  }
  return 0;
}

/* When no worker runs any more. Carriers that are still in user code end by themselves
   when they leave it. */
void weft_monitor_stop(weft_monitor *m) {
  pthread_mutex_lock(&m->lock);
  m->phase = STOPPING;
  pthread_cond_signal(&m->ended);
  for (int i = 0; i < m->highest; i++) pthread_cond_signal(&m->places[i].changed);
  pthread_mutex_unlock(&m->lock);
  weft_monitor_wake(m);
  pthread_join(m->thread, NULL);
  pthread_mutex_lock(&m->lock);
  int64_t until = now() + 1000000000;
  struct timespec t = {.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
  while (on_their_way(m) && pthread_cond_timedwait(&m->left, &m->lock, &t) != ETIMEDOUT) {}
  int none = m->carriers == 0;
  m->phase = STOPPED;
  pthread_mutex_unlock(&m->lock);
  if (none) release(m);
}
