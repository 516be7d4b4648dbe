#define _GNU_SOURCE
#include "weft_uring.h"
#include "weft_sys.h"

#include <errno.h>
#include <stdlib.h>

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/io_uring.h>) && __has_include(<linux/openat2.h>)
#include <linux/io_uring.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#endif
#endif

/* The last names that Linux 5.19 added. */
#if defined(IORING_RECVSEND_POLL_FIRST) && defined(IORING_ASYNC_CANCEL_ANY) && \
    defined(IORING_SETUP_TASKRUN_FLAG) && defined(__NR_io_uring_setup)

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Of Linux 6.1 and 6.5. */
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif
#ifdef IORING_SETUP_NO_MMAP
#define MEMORY(offsets) (offsets).user_addr
#else
#define IORING_SETUP_NO_MMAP (1U << 14)
#define MEMORY(offsets) (offsets).resv2
#endif

/* States of the wake-up. A wake-up costs a system call only when it finds the
 * owner asleep; one that comes earlier is remembered. */
enum {
  AWAKE,    /* the owner runs, or polls without blocking */
  NOTIFIED, /* a thread called wake since the owner last looked */
  SLEEPING  /* the owner is in, or about to enter, a blocking wait */
};

/* What a descriptor of the kernel's is, and the memory that it shares. */
struct queues {
  int fd;
  uint32_t tail;           /* of the submission queue, as we count it */
  uint32_t sq_entries;
  uint32_t sq_mask, cq_mask;
  uint32_t *sq_head, *sq_tail, *sq_flags;
  uint32_t *cq_head, *cq_tail;
  struct io_uring_sqe *sqes;
  struct io_uring_cqe *cqes;
  struct open_how *hows;   /* one for each submission queue entry */
  void *rings;
  size_t rings_size, sqes_size;
  uint32_t ended;          /* requests that have had their last completion */
};

/* The queues of a thread that drove the ring before: what is still in flight there. */
struct former {
  struct former *next;
  struct queues q;
  uint32_t left;           /* the next entry that the kernel never took */
};

struct weft_uring {
  /* Written by the owner. */
  struct queues q;         /* no descriptor (-1) while the kernel gives none */
  struct former *formers;
  uint32_t sq_wanted, cq_wanted;
  int deferred;
  void *scratch;           /* where WEFT_URING_WARM reads to */
  int held, quiet;
  /* The thread that last used the ring and armed the wake-up. The kernel runs
   * the work of a request on the thread that submitted it, so a new owner must
   * not depend on the wake-up of the one before. */
  int owned;
  pthread_t owner;
  uint64_t wake_generation;
  int wake_armed;
  uint64_t enters;
  struct weft_uring_event events[WEFT_URING_EVENTS];

  /* Shared with the threads that call wake, on a line of its own. */
  _Alignas(64) int state;
  int wakers;              /* threads inside weft_uring_wake */
  int closed;
  int event;               /* the eventfd */
  uint64_t wake_writes;
};

#define LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)

static const uint8_t needed_opcodes[] = {
    IORING_OP_RECV,    IORING_OP_SEND,    IORING_OP_RECVMSG,
    IORING_OP_SENDMSG, IORING_OP_ACCEPT,  IORING_OP_CONNECT,
    IORING_OP_POLL_ADD, IORING_OP_READ,   IORING_OP_WRITE,
    IORING_OP_FSYNC,   IORING_OP_OPENAT2, IORING_OP_STATX,
    IORING_OP_ASYNC_CANCEL,
};

/* Are all the opcodes there? 0 or an error. */
static int probe(int fd) {
  size_t size = sizeof(struct io_uring_probe) + 256 * sizeof(struct io_uring_probe_op);
  struct io_uring_probe *p = calloc(1, size);
  int result = 0;
  if (p == NULL) return -ENOMEM;
  if (syscall(__NR_io_uring_register, fd, IORING_REGISTER_PROBE, p, 256) < 0) {
    result = -errno;
  } else {
    for (size_t i = 0; i < sizeof needed_opcodes; i++) {
      uint8_t op = needed_opcodes[i];
      if (op > p->last_op || !(p->ops[op].flags & IO_URING_OP_SUPPORTED))
        result = -EOPNOTSUPP;
    }
  }
  free(p);
  return result;
}

static void release_queues(struct queues *q) {
  if (q->rings != NULL) munmap(q->rings, q->rings_size);
  if (q->sqes != NULL) munmap(q->sqes, q->sqes_size);
  if (q->fd >= 0) close(q->fd);
  free(q->hows);
  memset(q, 0, sizeof *q);
  q->fd = -1;
}

/* Give back everything but the structure itself. */
static void release(struct weft_uring *r) {
  release_queues(&r->q);
  while (r->formers != NULL) {
    struct former *f = r->formers;
    r->formers = f->next;
    release_queues(&f->q);
    free(f);
  }
  if (r->event >= 0) close(r->event);
  if (r->scratch != NULL) munmap(r->scratch, WEFT_SENDFILE_CHUNK);
  r->event = -1;
  r->scratch = NULL;
}

static uint32_t rounded(uint32_t n, uint32_t most) {
  uint32_t power = 1;
  while (power < n && power < most) power *= 2;
  return power;
}

static void *memory(size_t size) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return NULL;
  /* The kernel writes to these pages: a child must not get them in our place. */
  madvise(p, size, MADV_DONTFORK);
  return p;
}

static void *map(int fd, size_t size, off_t what) {
  void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, what);
  return p == MAP_FAILED ? NULL : p;
}

/* Set queues up with these flags of the kernel's: 0 or an error. Then nothing is left of them. */
static int open_queues(struct queues *q, uint32_t sq_entries, uint32_t cq_entries, uint32_t flags,
                       const char **step) {
  const uint32_t features =
      IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_SUBMIT_STABLE |
      IORING_FEAT_EXT_ARG | IORING_FEAT_FAST_POLL | IORING_FEAT_RW_CUR_POS;
  struct io_uring_params p;
  uint32_t i, *array;
  int e;

  memset(q, 0, sizeof *q);
  q->fd = -1;
  memset(&p, 0, sizeof p);
  p.flags = flags | IORING_SETUP_CLAMP | IORING_SETUP_CQSIZE | IORING_SETUP_SUBMIT_ALL;
  p.cq_entries = cq_entries;
  if (flags & IORING_SETUP_NO_MMAP) {
    /* At most what IORING_SETUP_CLAMP leaves; one page is for the heads and tails. */
    uint32_t sq = rounded(sq_entries, 32768), cq = rounded(cq_entries, 65536);
    *step = "mapping the ring";
    q->rings_size = 4096 + sizeof(struct io_uring_cqe) * (cq > sq ? cq : 2 * sq) + sizeof(uint32_t) * sq;
    q->sqes_size = sizeof(struct io_uring_sqe) * sq;
    q->rings = memory(q->rings_size);
    q->sqes = memory(q->sqes_size);
    e = -ENOMEM;
    if (q->rings == NULL || q->sqes == NULL) goto failed;
    MEMORY(p.cq_off) = (uintptr_t)q->rings;
    MEMORY(p.sq_off) = (uintptr_t)q->sqes;
  }
  *step = "creating a ring";
  q->fd = syscall(__NR_io_uring_setup, sq_entries, &p);
  if (q->fd < 0) {
    e = -errno;
    goto failed;
  }
  *step = "checking the kernel's features";
  if ((p.features & features) != features) {
    e = -EOPNOTSUPP;
    goto failed;
  }
  *step = "probing the kernel's operations";
  e = probe(q->fd);
  if (e < 0) goto failed;

  *step = "mapping the ring";
  e = -ENOMEM;
  if (!(flags & IORING_SETUP_NO_MMAP)) {
    size_t completions = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
    q->rings_size = p.sq_off.array + p.sq_entries * sizeof(uint32_t);
    if (completions > q->rings_size) q->rings_size = completions;
    q->rings = map(q->fd, q->rings_size, IORING_OFF_SQ_RING);
    q->sqes_size = p.sq_entries * sizeof(struct io_uring_sqe);
    q->sqes = map(q->fd, q->sqes_size, IORING_OFF_SQES);
    if (q->rings == NULL || q->sqes == NULL) goto failed;
  }
  q->hows = calloc(p.sq_entries, sizeof(struct open_how));
  if (q->hows == NULL) goto failed;

#define AT(offset) ((uint32_t *)((char *)q->rings + (offset)))
  q->sq_entries = p.sq_entries;
  q->sq_head = AT(p.sq_off.head);
  q->sq_tail = AT(p.sq_off.tail);
  q->sq_flags = AT(p.sq_off.flags);
  q->sq_mask = *AT(p.sq_off.ring_mask);
  q->cq_head = AT(p.cq_off.head);
  q->cq_tail = AT(p.cq_off.tail);
  q->cq_mask = *AT(p.cq_off.ring_mask);
  q->cqes = (struct io_uring_cqe *)AT(p.cq_off.cqes);
  array = AT(p.sq_off.array);
#undef AT
  for (i = 0; i < p.sq_entries; i++) array[i] = i;
  q->tail = *q->sq_tail;
  return 0;

failed:
  release_queues(q);
  return e;
}

/* Queues for the calling thread, which no other thread may use, and whose completion work is done
 * where it enters the kernel for events, and nowhere else. Linux 6.1; that the memory is ours, so
 * that it outlives the descriptor, 6.5, and in more than one page 6.10. */
static const uint32_t deferred =
    IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG | IORING_SETUP_NO_MMAP;

struct weft_uring *weft_uring_new(uint32_t sq_entries, uint32_t cq_entries,
                                  uint32_t modes, const char **step, int *error) {
  struct weft_uring *r;
  int e = -EOPNOTSUPP;

  *step = "creating a ring";
  r = aligned_alloc(64, (sizeof *r + 63) & ~(size_t)63);
  if (r == NULL) {
    *error = -ENOMEM;
    return NULL;
  }
  memset(r, 0, sizeof *r);
  r->event = r->q.fd = -1;
  r->sq_wanted = sq_entries;
  r->cq_wanted = cq_entries;

  if (modes & WEFT_URING_DEFERRED) {
    e = open_queues(&r->q, sq_entries, cq_entries, deferred, step);
    r->deferred = e == 0;
  }
  /* Completion work waits for the next system call or tick of the thread
   * instead of interrupting it; a flag in the ring says that there is some.
   * Linux 5.19 and later, as is cancelling by descriptor. */
  if (!r->deferred)
    e = open_queues(&r->q, sq_entries, cq_entries,
                    modes & WEFT_URING_PLAIN ? 0 : IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG, step);
  if (e < 0) goto failed;

  *step = "mapping the ring";
  r->scratch = mmap(NULL, WEFT_SENDFILE_CHUNK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (r->scratch == MAP_FAILED) {
    e = -errno;
    r->scratch = NULL;
    goto failed;
  }
  *step = "creating an eventfd";
  r->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (r->event < 0) {
    e = -errno;
    goto failed;
  }
  *error = 0;
  return r;

failed:
  release(r);
  free(r);
  *error = e;
  return NULL;
}

int weft_uring_deferred(const struct weft_uring *r) { return r->deferred; }

void weft_uring_close(struct weft_uring *r) {
  __atomic_store_n(&r->closed, 1, __ATOMIC_SEQ_CST);
  /* A thread that saw the ring open may be about to write to the eventfd, whose
   * number must not name another file by then. It does not block there. */
  while (__atomic_load_n(&r->wakers, __ATOMIC_SEQ_CST) != 0) sched_yield();
  release(r);
}

void weft_uring_free(struct weft_uring *r) { free(r); }

/* Note [Another thread drives the ring] in Weft.Internal.Backend.Uring. The handle of a thread
 * that has ended may be used again, so comparing handles is not enough to find out that the
 * owner is another one. */
void weft_uring_adopt(struct weft_uring *r) {
  struct former *f;
  r->owned = 0;
  if (!r->deferred || r->q.fd < 0) return;
  f = malloc(sizeof *f);
  if (f == NULL) abort();
  /* Closing has the kernel cancel what is in flight. The completions come to our memory. First,
   * so that there is a descriptor for the new queues. */
  close(r->q.fd);
  f->q = r->q;
  f->q.fd = -1;
  f->left = LOAD(f->q.sq_head);
  f->next = r->formers;
  r->formers = f;
  memset(&r->q, 0, sizeof r->q);
  r->q.fd = -1;
  r->wake_armed = 0;
}

void weft_uring_quiesce(struct weft_uring *r) { r->quiet = 1; }
void weft_uring_hold(struct weft_uring *r, int held) { r->held = held; }
int weft_uring_quiet(const struct weft_uring *r) { return !r->wake_armed; }
uint64_t weft_uring_count_enter(const struct weft_uring *r) { return r->enters; }
uint64_t weft_uring_count_wake_writes(const struct weft_uring *r) {
  return __atomic_load_n(&r->wake_writes, __ATOMIC_SEQ_CST);
}
struct weft_uring_event *weft_uring_events(struct weft_uring *r) { return r->events; }

/* Entering the kernel -------------------------------------------------------- */

/* The kernel took nothing: what is queued stays. */
enum { REFUSED = 1 };

static uint32_t queued(struct weft_uring *r) { return r->q.tail - LOAD(r->q.sq_head); }

static int cq_empty(struct weft_uring *r) { return *r->q.cq_head == LOAD(r->q.cq_tail); }

/* Are there queues? After adopt the calling thread has them made. While the kernel refuses (it has no
 * descriptor, or no memory) nothing can be queued, and asking takes a moment, so that it is not
 * asked all the time. */
static int ready(struct weft_uring *r) {
  static const struct timespec moment = {0, 1000000};
  const char *step;
  if (r->q.fd >= 0) return 1;
  if (open_queues(&r->q, r->sq_wanted, r->cq_wanted, deferred, &step) == 0) return 1;
  nanosleep(&moment, NULL);
  return 0;
}

/* 0, REFUSED, or an error. */
static int enter(struct weft_uring *r, uint32_t wanted, unsigned flags, void *arg, size_t size) {
  int n;
  r->enters++;
  n = syscall(__NR_io_uring_enter, r->q.fd, queued(r), wanted, flags, arg, size);
  if (n >= 0) return 0;
  switch (errno) {
    case ETIME: /* the time is up */
    case EINTR: /* a signal */
      return 0;
    case EAGAIN: /* no memory for a request at the moment */
    case EBUSY:  /* completions must be collected first */
      return REFUSED;
    default:
      return -errno;
  }
}

/* The next free submission queue entry, cleared, or NULL. */
static struct io_uring_sqe *next(struct weft_uring *r, int opcode, int fd, uint64_t user_data) {
  struct io_uring_sqe *s;
  if (r->closed || r->q.fd < 0) return NULL;
  if (queued(r) == r->q.sq_entries) {
    if (r->held) return NULL;
    enter(r, 0, 0, NULL, 0);
    if (queued(r) == r->q.sq_entries) return NULL;
  }
  s = &r->q.sqes[r->q.tail & r->q.sq_mask];
  memset(s, 0, sizeof *s);
  s->opcode = opcode;
  s->fd = fd;
  s->user_data = user_data;
  return s;
}

/* The entry that next gave is complete. The kernel reads it when it is entered. */
static int done(struct weft_uring *r) {
  r->q.tail++;
  STORE(r->q.sq_tail, r->q.tail);
  return 1;
}

/* Have a poll of the eventfd in flight that belongs to this thread. It is never
 * read: the poll is edge-triggered, and its counter cannot overflow. */
static void keep_wakeable(struct weft_uring *r) {
  struct io_uring_sqe *s;
  pthread_t self = pthread_self();
  if (r->owned && r->wake_armed && pthread_equal(r->owner, self)) return;
  if (r->quiet) return;
  if (r->wake_armed) {
    uint64_t old = r->wake_generation * WEFT_URING_KINDS + WEFT_URING_WAKE;
    if (!weft_uring_cancel(r, old)) return;
    r->wake_armed = 0;
  }
  s = next(r, IORING_OP_POLL_ADD, r->event,
           (r->wake_generation + 1) * WEFT_URING_KINDS + WEFT_URING_WAKE);
  if (s == NULL) return;
  s->poll32_events = POLLIN;
  s->len = IORING_POLL_ADD_MULTI;
  done(r);
  r->wake_generation++;
  r->wake_armed = 1;
  r->owned = 1;
  r->owner = self;
}

/* Do the events of a watch say that the stream has ended, failed, or has urgent data in it? They are
 * what the socket's wake-up announced, and for bytes that is POLLPRI and POLLRDBAND in any case; or, after several wake-ups and
 * one that announced nothing, what the socket says. TCP never says POLLRDBAND, and wakes twice for urgent data. */
static int ends(int32_t events) {
  return (events & (POLLRDHUP | POLLHUP | POLLERR)) != 0 || (events & (POLLPRI | POLLRDBAND)) == POLLPRI;
}

static int show(struct weft_uring *r, int n, uint64_t user_data, int32_t result, uint32_t flags) {
  switch (user_data % WEFT_URING_KINDS) {
    case WEFT_URING_OPERATION:
    case WEFT_URING_WATCHED: break;
    case WEFT_URING_CANCEL_OPERATION:
      if (result == -ENOENT) break;
      return n;
    case WEFT_URING_CANCEL_DESCRIPTOR:
      if (result >= 0) break;
      return n;
    default: return n;
  }
  r->events[n].user_data = user_data;
  r->events[n].result = result;
  r->events[n].flags = flags;
  if (result >= 0 && ends(result)) r->events[n].flags |= WEFT_URING_ENDS;
  return n + 1;
}

/* Move completions to events, of which there are n, at most until they are full. */
static int collect_from(struct weft_uring *r, struct queues *q, int n) {
  uint32_t head = *q->cq_head, tail = LOAD(q->cq_tail);
  while (head != tail && n < WEFT_URING_EVENTS) {
    const struct io_uring_cqe *c = &q->cqes[head++ & q->cq_mask];
    int last = !(c->flags & IORING_CQE_F_MORE);
    q->ended += last;
    if (c->user_data % WEFT_URING_KINDS == WEFT_URING_WAKE) {
      /* The poll ended: an error, a full completion queue, its thread's end. */
      if (last && c->user_data / WEFT_URING_KINDS == r->wake_generation) r->wake_armed = 0;
    } else
      n = show(r, n, c->user_data, c->res, last ? 0 : WEFT_URING_MORE);
  }
  STORE(q->cq_head, head);
  return n;
}

/* The same of the queues of former owners. What the kernel never took is lost there, as what it
 * cancels. */
static int collect_former(struct weft_uring *r) {
  struct former **at = &r->formers;
  int n = 0;
  while (*at != NULL) {
    struct former *f = *at;
    n = collect_from(r, &f->q, n);
    for (; f->left != f->q.tail && n < WEFT_URING_EVENTS; f->left++)
      n = show(r, n, f->q.sqes[f->left & f->q.sq_mask].user_data, -ECANCELED, 0);
    if (f->left == f->q.tail && f->q.ended == LOAD(f->q.sq_head)) {
      *at = f->next;
      release_queues(&f->q);
      free(f);
    } else
      at = &f->next;
  }
  return n;
}

/* Former owners first: each of their requests ends once, while cancellations of these that find
 * nothing here are made again and again, and would fill every portion. */
static int collect(struct weft_uring *r) {
  return collect_from(r, &r->q, r->formers == NULL ? 0 : collect_former(r));
}

/* Completions beyond the queue, and work of ours in the kernel, need an entry. */
static int must_enter(struct weft_uring *r) {
  return (LOAD(r->q.sq_flags) & (IORING_SQ_CQ_OVERFLOW | IORING_SQ_TASKRUN)) != 0;
}

static int turn(struct weft_uring *r) {
  /* What has completed is collected in portions: Note [Portions of completions] in
   * Weft.Internal.Backend.Uring. */
  if (queued(r) != 0 || (cq_empty(r) && must_enter(r))) {
    int e = enter(r, 0, IORING_ENTER_GETEVENTS, NULL, 0);
    if (e < 0) return e;
  }
  return collect(r);
}

int weft_uring_turn(struct weft_uring *r) {
  if (r->closed) return 0;
  if (!ready(r)) return collect_former(r);
  keep_wakeable(r);
  return turn(r);
}

static const int64_t former_pause = 1000000;

int weft_uring_wait(struct weft_uring *r, int64_t nanoseconds) {
  int e = 0, awake = AWAKE;
  if (r->closed) return 0;
  if (!ready(r)) return collect_former(r);
  keep_wakeable(r);
  /* Nothing says when a former owner's requests end. */
  if (r->formers != NULL && (nanoseconds < 0 || nanoseconds > former_pause)) nanoseconds = former_pause;
  if (!__atomic_compare_exchange_n(&r->state, &awake, SLEEPING, 0, __ATOMIC_SEQ_CST,
                                   __ATOMIC_SEQ_CST)) {
    __atomic_store_n(&r->state, AWAKE, __ATOMIC_SEQ_CST);
    return turn(r);
  }
  /* Overflown completions and our own pending work are dealt with by the kernel
   * before it lets us sleep. Work pending on a thread that owned the ring before
   * must not keep us from sleeping. */
  if (cq_empty(r) && (r->wake_armed || r->quiet)) {
    struct __kernel_timespec ts;
    struct io_uring_getevents_arg arg;
    int64_t deadline = weft_deadline_of(nanoseconds), left = nanoseconds;
    memset(&arg, 0, sizeof arg);
    if (nanoseconds >= 0) arg.ts = (uintptr_t)&ts;
    /* A signal ends the kernel's wait early, which does not say so when it has taken something. */
    do {
      ts.tv_sec = left / 1000000000;
      ts.tv_nsec = left % 1000000000;
      e = enter(r, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &arg, sizeof arg);
    } while (e == 0 && cq_empty(r) && (left = weft_left_until(deadline, nanoseconds)) != 0);
    __atomic_store_n(&r->state, AWAKE, __ATOMIC_SEQ_CST);
    return e < 0 ? e : collect(r);
  }
  __atomic_store_n(&r->state, AWAKE, __ATOMIC_SEQ_CST);
  return turn(r);
}

void weft_uring_wake(struct weft_uring *r) {
  static const uint64_t one = 1;
  /* Most calls find the owner running, or another waker was faster. */
  if (__atomic_exchange_n(&r->state, NOTIFIED, __ATOMIC_SEQ_CST) != SLEEPING) return;
  __atomic_add_fetch(&r->wakers, 1, __ATOMIC_SEQ_CST);
  if (!__atomic_load_n(&r->closed, __ATOMIC_SEQ_CST)) {
    ssize_t n;
    /* Counted first: the thread that the write wakes sees it counted. */
    __atomic_add_fetch(&r->wake_writes, 1, __ATOMIC_SEQ_CST);
    do n = write(r->event, &one, sizeof one);
    while (n < 0 && errno == EINTR);
  }
  __atomic_sub_fetch(&r->wakers, 1, __ATOMIC_SEQ_CST);
}

/* Submissions ---------------------------------------------------------------- */

/* The kernel's operation for each request, and the flags that it always has. */
static const struct {
  uint8_t opcode;
  uint16_t priority;
  uint32_t flags;
} requests[] = {
    /* We tried, or have reason to think that there is nothing: do not try again. */
    [WEFT_URING_RECEIVE] = {IORING_OP_RECV, IORING_RECVSEND_POLL_FIRST, 0},
    [WEFT_URING_SEND] = {IORING_OP_SEND, IORING_RECVSEND_POLL_FIRST, MSG_NOSIGNAL},
    [WEFT_URING_RECEIVE_MESSAGE] = {IORING_OP_RECVMSG, IORING_RECVSEND_POLL_FIRST, MSG_CMSG_CLOEXEC},
    [WEFT_URING_SEND_MESSAGE] = {IORING_OP_SENDMSG, IORING_RECVSEND_POLL_FIRST, MSG_NOSIGNAL},
    [WEFT_URING_ACCEPT] = {IORING_OP_ACCEPT, 0, SOCK_NONBLOCK | SOCK_CLOEXEC},
    [WEFT_URING_CONNECT] = {IORING_OP_CONNECT, 0, 0},
    [WEFT_URING_AWAIT_READABLE] = {IORING_OP_POLL_ADD, 0, POLLIN | POLLRDHUP},
    [WEFT_URING_AWAIT_WRITABLE] = {IORING_OP_POLL_ADD, 0, POLLOUT},
    [WEFT_URING_AWAIT_EVENTS] = {IORING_OP_POLL_ADD, 0, 0},
    [WEFT_URING_WATCH] = {IORING_OP_POLL_ADD, 0, POLLIN | POLLRDHUP | POLLPRI | POLLRDBAND},
    [WEFT_URING_READ_AT] = {IORING_OP_READ, 0, 0},
    [WEFT_URING_WRITE_AT] = {IORING_OP_WRITE, 0, 0},
    [WEFT_URING_WARM] = {IORING_OP_READ, 0, 0},
    [WEFT_URING_SYNC] = {IORING_OP_FSYNC, 0, 0}, /* IORING_FSYNC_DATASYNC is 1 */
    [WEFT_URING_STAT_AT] = {IORING_OP_STATX, 0, 0},
};

int weft_uring_submit(struct weft_uring *r, int request, int fd, const void *address, uint32_t size,
                      int64_t offset, uint32_t flags, uint64_t id) {
  struct io_uring_sqe *s = next(r, requests[request].opcode, fd, id);
  if (s == NULL) return 0;
  flags |= requests[request].flags;
  if (request == WEFT_URING_WARM) {
    address = r->scratch;
    if (size > WEFT_SENDFILE_CHUNK) size = WEFT_SENDFILE_CHUNK;
  }
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
  /* The kernel wants the halves of events swapped. */
  if (s->opcode == IORING_OP_POLL_ADD) flags = flags << 16 | flags >> 16;
#endif
  s->ioprio = requests[request].priority;
  s->addr = (uintptr_t)address;
  s->len = request == WEFT_URING_WATCH ? IORING_POLL_ADD_MULTI : size;
  s->off = offset;
  s->msg_flags = flags; /* One field, with a name for each operation. */
  return done(r);
}

int weft_uring_open_at(struct weft_uring *r, int fd, const void *path, uint64_t flags,
                       uint64_t mode, uint64_t resolve, uint64_t id) {
  struct io_uring_sqe *s = next(r, IORING_OP_OPENAT2, fd, id);
  struct open_how *how;
  if (s == NULL) return 0;
  /* The kernel copies it when it takes the entry, and not before. */
  how = &r->q.hows[r->q.tail & r->q.sq_mask];
  how->flags = flags;
  how->mode = mode;
  how->resolve = resolve;
  s->addr = (uintptr_t)path;
  s->len = sizeof *how;
  s->off = (uintptr_t)how;
  return done(r);
}

int weft_uring_cancel(struct weft_uring *r, uint64_t target) {
  int operation = target % WEFT_URING_KINDS == WEFT_URING_OPERATION;
  struct io_uring_sqe *s =
      next(r, IORING_OP_ASYNC_CANCEL, -1, operation ? target + WEFT_URING_CANCEL_OPERATION : WEFT_URING_CANCEL);
  if (s == NULL) return 0;
  s->addr = target;
  return done(r);
}

int weft_uring_cancel_descriptor(struct weft_uring *r, int fd) {
  struct io_uring_sqe *s =
      next(r, IORING_OP_ASYNC_CANCEL, fd, (uint64_t)fd * WEFT_URING_KINDS + WEFT_URING_CANCEL_DESCRIPTOR);
  if (s == NULL) return 0;
  s->cancel_flags = IORING_ASYNC_CANCEL_FD | IORING_ASYNC_CANCEL_ALL;
  return done(r);
}

int weft_uring_cancel_all(struct weft_uring *r) {
  struct io_uring_sqe *s = next(r, IORING_OP_ASYNC_CANCEL, -1, WEFT_URING_CANCEL);
  if (s == NULL) return 0;
  s->cancel_flags = IORING_ASYNC_CANCEL_ANY | IORING_ASYNC_CANCEL_ALL;
  return done(r);
}

#else /* no io_uring, or one that is too old */

struct weft_uring *weft_uring_new(uint32_t sq_entries, uint32_t cq_entries,
                                  uint32_t modes, const char **step, int *error) {
  (void)sq_entries, (void)cq_entries, (void)modes;
  *step = "creating a ring";
  *error = -ENOSYS;
  return NULL;
}

/* There is no ring, so none of these is ever called. */
#define ABSENT(type, name, ...) \
  type name(__VA_ARGS__) { abort(); }
#define R struct weft_uring *r
#pragma GCC diagnostic ignored "-Wunused-parameter"
ABSENT(void, weft_uring_close, R)
ABSENT(void, weft_uring_free, R)
ABSENT(void, weft_uring_adopt, R)
ABSENT(int, weft_uring_deferred, const R)
ABSENT(int, weft_uring_turn, R)
ABSENT(int, weft_uring_wait, R, int64_t t)
ABSENT(struct weft_uring_event *, weft_uring_events, R)
ABSENT(void, weft_uring_wake, R)
ABSENT(void, weft_uring_quiesce, R)
ABSENT(int, weft_uring_quiet, const R)
ABSENT(uint64_t, weft_uring_count_enter, const R)
ABSENT(uint64_t, weft_uring_count_wake_writes, const R)
ABSENT(void, weft_uring_hold, R, int h)
ABSENT(int, weft_uring_submit, R, int q, int fd, const void *a, uint32_t n, int64_t o, uint32_t f,
       uint64_t id)
ABSENT(int, weft_uring_open_at, R, int fd, const void *a, uint64_t f, uint64_t m, uint64_t v,
       uint64_t id)
ABSENT(int, weft_uring_cancel, R, uint64_t target)
ABSENT(int, weft_uring_cancel_descriptor, R, int fd)
ABSENT(int, weft_uring_cancel_all, R)

#endif
