/*
 * kqueue, as a source of readiness: the system's own on BSD and macOS, libkqueue elsewhere. Where
 * it is not compiled in (the cabal flag kqueue), every function answers -ENOSYS.
 */
#include "weft_sys.h"

#include <errno.h>

#ifdef WEFT_KQUEUE

#include <sys/types.h>

#include <sys/event.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

_Static_assert(sizeof(void *) == sizeof(uint64_t), "a key fits into what an event carries");

intptr_t weft_kqueue_is_built(void) { return 1; }

intptr_t weft_kqueue_create(void) {
  int kq = kqueue();
  return kq == -1 ? -(intptr_t)errno : kq;
}

static intptr_t change(int kq, int fd, int filter, int flags, uint64_t key) {
  struct kevent k;
  int r;
  EV_SET(&k, (uintptr_t)fd, (short)filter, (unsigned short)flags, 0, 0, (void *)(uintptr_t)key);
  do {
    r = kevent(kq, &k, 1, NULL, 0, NULL);
  } while (r == -1 && errno == EINTR);
  return r == -1 ? -(intptr_t)errno : 0;
}

static intptr_t ask(int kq, int fd, int filter, int wanted, uint64_t key) {
#ifdef LIBKQUEUE
  /* It does not replace a registration reliably. */
  change(kq, fd, filter, EV_DELETE, 0);
#else
  if (!wanted) change(kq, fd, filter, EV_DELETE, 0);
#endif
  return wanted ? change(kq, fd, filter, EV_ADD, key) : 0;
}

intptr_t weft_kqueue_watch(int kq, int fd, uint64_t key, intptr_t bits) {
  struct stat status;
  if (fstat(fd, &status) == -1) return -(intptr_t)errno;
  /* Always ready. A kqueue would say so until the end of the file only. */
  if (S_ISREG(status.st_mode)) return -EPERM;
  if (!(bits & (WEFT_READABLE | WEFT_WRITABLE))) return -EOPNOTSUPP;
  intptr_t r = ask(kq, fd, EVFILT_READ, bits & WEFT_READABLE, key);
  return r < 0 ? r : ask(kq, fd, EVFILT_WRITE, bits & WEFT_WRITABLE, key);
}

void weft_kqueue_remove(int kq, int fd) {
  change(kq, fd, EVFILT_READ, EV_DELETE, 0);
  change(kq, fd, EVFILT_WRITE, EV_DELETE, 0);
}

intptr_t weft_kqueue_wait(int kq, struct weft_event *events, intptr_t capacity, int64_t timeout) {
  enum { MOST = 256 };
  struct kevent found[MOST];
  int64_t deadline = weft_deadline_of(timeout), left = timeout;
  int n;
  for (;;) {
    struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
    n = kevent(kq, NULL, 0, found, capacity < MOST ? (int)capacity : MOST, timeout < 0 ? NULL : &t);
    if (n != -1) break;
    if (errno != EINTR) return -(intptr_t)errno;
    left = weft_left_until(deadline, timeout);
  }
  for (int i = 0; i < n; i++) {
    int writing = found[i].filter == EVFILT_WRITE;
    uint64_t bits = writing ? WEFT_WRITABLE : WEFT_READABLE;
    if (found[i].flags & EV_EOF) {
      bits |= WEFT_PEER_CLOSED | (writing ? WEFT_WRITE_HANGUP : WEFT_READ_HANGUP);
      if (found[i].fflags != 0) bits |= WEFT_FAILED;
    }
    events[i].key = (uint64_t)(uintptr_t)found[i].udata;
    events[i].bits = bits;
  }
  return n;
}

#else

intptr_t weft_kqueue_is_built(void) { return 0; }

intptr_t weft_kqueue_create(void) { return -ENOSYS; }

intptr_t weft_kqueue_watch(int kq, int fd, uint64_t key, intptr_t bits) {
  (void)kq, (void)fd, (void)key, (void)bits;
  return -ENOSYS;
}

void weft_kqueue_remove(int kq, int fd) { (void)kq, (void)fd; }

intptr_t weft_kqueue_wait(int kq, struct weft_event *events, intptr_t capacity, int64_t timeout) {
  (void)kq, (void)events, (void)capacity, (void)timeout;
  return -ENOSYS;
}

#endif
