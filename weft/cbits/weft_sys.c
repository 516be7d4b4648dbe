#define _GNU_SOURCE
#include "weft_sys.h"

#include "weft_raw.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#ifdef SYS_openat2
#include <linux/openat2.h>
#endif

/* Retry a call that a signal interrupted, then answer as Haskell expects it. */
#define ANSWER(call)                          \
  do {                                        \
    intptr_t r_;                              \
    do {                                      \
      r_ = (intptr_t)(call);                  \
    } while (r_ == -1 && errno == EINTR);     \
    return r_ == -1 ? -(intptr_t)errno : r_;  \
  } while (0)

/* ---- Streams ---------------------------------------------------------- */

intptr_t weft_recv(int fd, void *buffer, intptr_t size) {
  ANSWER(weft_raw_recv(fd, buffer, (size_t)size, MSG_DONTWAIT));
}

intptr_t weft_send(int fd, const void *buffer, intptr_t size) {
  ANSWER(weft_raw_send(fd, buffer, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL));
}

intptr_t weft_recvmsg(int fd, void *header) {
  ANSWER(recvmsg(fd, header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC));
}

intptr_t weft_sendmsg(int fd, const void *header) {
  ANSWER(sendmsg(fd, header, MSG_DONTWAIT | MSG_NOSIGNAL));
}

intptr_t weft_accept(int fd, void *address, void *address_size) {
  ANSWER(accept4(fd, address, address_size, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

intptr_t weft_connect(int fd, const void *address, intptr_t size) {
  /* Not retried after EINTR: the attempt goes on, as after EINPROGRESS. */
  if (connect(fd, address, (socklen_t)size) == 0) return 0;
  return errno == EINTR ? -EINPROGRESS : -(intptr_t)errno;
}

/* How an attempt to connect ended: 0, -errno, or -EAGAIN while it is going on.
   A socket without an error that is not writable yet is still connecting. */
intptr_t weft_connect_result(int fd) {
  int failure = 0;
  socklen_t size = sizeof failure;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &size) == -1)
    return -(intptr_t)errno;
  return failure != 0 ? -(intptr_t)failure : weft_ready_now(fd, WEFT_WRITABLE);
}

intptr_t weft_read(int fd, void *buffer, intptr_t size) {
  ANSWER(read(fd, buffer, (size_t)size));
}

intptr_t weft_write(int fd, const void *buffer, intptr_t size) {
  ANSWER(write(fd, buffer, (size_t)size));
}

intptr_t weft_sendfile(int out, int in, int64_t offset, intptr_t size) {
  off_t at = offset;
  ANSWER(sendfile(out, in, &at, (size_t)size));
}

/* 0 when a read (write) would not block now, -EAGAIN when it would. */
intptr_t weft_ready_now(int fd, intptr_t bits) {
  struct pollfd p = {.fd = fd, .events = (short)weft_poll_events(bits)};
  int n;
  do {
    n = poll(&p, 1, 0);
  } while (n == -1 && errno == EINTR);
  if (n == -1) return -(intptr_t)errno;
  if (n == 0) return -EAGAIN;
  return p.revents & POLLNVAL ? -EBADF : 0;
}

/* Wait until a read (write) would not block; 0 then. */
intptr_t weft_await_ready(int fd, intptr_t bits) {
  struct pollfd p = {.fd = fd, .events = (short)weft_poll_events(bits)};
  ANSWER(poll(&p, 1, -1) == -1 ? -1 : 0);
}

/* 1 for a stream where a short transfer proves that there is nothing left to transfer: a TCP
   socket without an upper-layer protocol (kernel TLS, MPTCP), and a pipe. Not a FIFO, into
   which another process may write packets (O_DIRECT), at which a read stops. */
intptr_t weft_gives_all(int fd) {
#ifdef TCP_ULP
  char name[16];
  socklen_t size = sizeof name;
  if (getsockopt(fd, IPPROTO_TCP, TCP_ULP, name, &size) == 0) return size == 0;
#endif
#ifdef F_GETPIPE_SZ
  struct stat status;
  struct statfs system;
  return fstat(fd, &status) == 0 && S_ISFIFO(status.st_mode) && fstatfs(fd, &system) == 0 &&
         system.f_type == PIPEFS_MAGIC && !(fcntl(fd, F_GETFL) & O_DIRECT);
#else
  return 0;
#endif
}

/* ---- Files ------------------------------------------------------------ */

/* An offset of -1 means the file's own position, as io_uring has it. */
intptr_t weft_pread(int fd, void *buffer, intptr_t size, int64_t offset) {
  if (offset == -1) return weft_read(fd, buffer, size);
  ANSWER(pread(fd, buffer, (size_t)size, offset));
}

intptr_t weft_pwrite(int fd, const void *buffer, intptr_t size, int64_t offset) {
  if (offset == -1) return weft_write(fd, buffer, size);
  ANSWER(pwrite(fd, buffer, (size_t)size, offset));
}

intptr_t weft_fsync(int fd, intptr_t data_only) {
  ANSWER(data_only ? fdatasync(fd) : fsync(fd));
}

intptr_t weft_openat2(int dir, const char *path, intptr_t flags, intptr_t mode,
                      intptr_t resolve) {
  /* openat2 refuses a mode for a file that is not created; openat ignores it. */
  int creates = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
#ifdef SYS_openat2
  struct open_how how;
  memset(&how, 0, sizeof how);
  how.flags = (uint64_t)flags;
  how.mode = creates ? (uint64_t)mode : 0;
  how.resolve = (uint64_t)resolve;
  /* A rename elsewhere can make a scoped resolution undecided (EAGAIN): the
     manual asks to try again, a bound keeps a hostile renamer from holding us. */
  for (int attempt = 0; attempt < 64;) {
    long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd >= 0) return fd;
    if (errno == ENOSYS) break;
    if (errno == EAGAIN && resolve != 0 && ++attempt < 64) continue;
    if (errno != EINTR) return -(intptr_t)errno;
  }
#endif
  if (resolve != 0) return -ENOSYS;
  ANSWER(openat(dir, path, (int)flags, creates ? (mode_t)mode : 0));
}

intptr_t weft_statx(int dir, const char *path, intptr_t flags, intptr_t mask,
                    void *buffer) {
  ANSWER(statx(dir, path, (int)flags, (unsigned)mask, buffer));
}

#ifdef RWF_NOWAIT
static ssize_t byte_at(int fd, int64_t offset) {
  char byte;
  struct iovec v = {&byte, 1};
  return preadv2(fd, &v, 1, offset, RWF_NOWAIT);
}
#endif

/* How many bytes from the offset on are in the page cache (0 at the end of the
   file), -EAGAIN when not even the first is. Never waits for a disk.

   Pages come and go in runs, by read-ahead and in large folios, and a run goes from
   its beginning: the first byte of every 64 KiB is looked at, and the last byte of
   all; within the smallest read-ahead, the first byte says it. There may be less of
   the file then. */
intptr_t weft_resident(int fd, int64_t offset, intptr_t size) {
#ifdef RWF_NOWAIT
  enum { TINY = 16384, RUN = 65536, MOST = 4 * RUN };
  if (size > MOST) size = MOST;
  intptr_t at = 0;
  while (at < size) {
    ssize_t there = byte_at(fd, offset + at);
    if (there == -1 && errno == EINTR) continue;
    if (there != 1)
      return at > 0 ? at : there == 0 ? 0 : -(intptr_t)errno;
    intptr_t last = size - 1;
    at = at == last || size <= TINY ? size : at + RUN < last ? at + RUN : last;
  }
  return size;
#else
  (void)fd, (void)offset, (void)size;
  return -EOPNOTSUPP;
#endif
}

/* Bring bytes of a file into the page cache; answers how many there are. */
intptr_t weft_read_in(int fd, int64_t offset, intptr_t size) {
  char scratch[65536];
  intptr_t done = 0;
  while (done < size) {
    intptr_t left = size - done;
    intptr_t n = weft_pread(fd, scratch,
                            left < (intptr_t)sizeof scratch
                                ? left
                                : (intptr_t)sizeof scratch,
                            offset + done);
    if (n < 0) return done > 0 ? done : n;
    if (n == 0) break;
    done += n;
  }
  return done;
}

/* ---- Descriptors ------------------------------------------------------ */

intptr_t weft_close(int fd) {
  /* On Linux the number is free after EINTR too: closing again could close
     another owner's descriptor. */
  if (close(fd) == 0 || errno == EINTR) return 0;
  return -(intptr_t)errno;
}

intptr_t weft_eventfd(void) { ANSWER(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

/* ---- Waiting ---------------------------------------------------------- */

int64_t weft_monotonic(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void weft_spin(int64_t nanoseconds) {
  int64_t deadline = weft_monotonic() + nanoseconds;
  while (weft_monotonic() < deadline)
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb");
#else
    ;
#endif
}

int64_t weft_deadline_of(int64_t timeout) {
  if (timeout <= 0) return timeout;
  int64_t now = weft_monotonic();
  return timeout > INT64_MAX - now ? INT64_MAX : now + timeout;
}

int64_t weft_left_until(int64_t deadline, int64_t timeout) {
  if (timeout <= 0) return timeout;
  int64_t left = deadline - weft_monotonic();
  return left > 0 ? left : 0;
}

static struct timespec timespec_of(int64_t nanoseconds) {
  struct timespec t = {.tv_sec = nanoseconds / 1000000000,
                       .tv_nsec = nanoseconds % 1000000000};
  return t;
}

intptr_t weft_epoll_create(void) { ANSWER(epoll_create1(EPOLL_CLOEXEC)); }

/* EPOLLPRI is asked for because urgent data makes short reads: see
   Note [No wake-up is lost]. */
intptr_t weft_epoll_watch(int epfd, int fd, uint64_t key, intptr_t trigger,
                          intptr_t bits) {
  struct epoll_event e = {.data = {.u64 = key}};
  if (trigger == WEFT_EDGE) e.events |= EPOLLET;
  if (trigger == WEFT_ONCE) e.events |= EPOLLONESHOT;
  if (bits & WEFT_READABLE) e.events |= EPOLLIN | EPOLLRDHUP;
  /* Not for others: what stays until it is read as what it is would be reported for ever. */
  if (trigger == WEFT_EDGE) e.events |= EPOLLPRI;
  if (bits & WEFT_WRITABLE) e.events |= EPOLLOUT;
  if (bits & WEFT_PEER_CLOSED) e.events |= EPOLLRDHUP;
  /* A descriptor that is watched once is mostly watched again: its registration is there,
     disarmed. One that is watched for longer mostly is new. */
  int first = trigger == WEFT_ONCE ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
  intptr_t r = epoll_ctl(epfd, first, fd, &e);
  /* A predecessor of this number can still be there when its open file is also
     held under another number. */
  if (r == -1 && errno == EEXIST) r = epoll_ctl(epfd, EPOLL_CTL_MOD, fd, &e);
  if (r == -1 && errno == ENOENT) r = epoll_ctl(epfd, EPOLL_CTL_ADD, fd, &e);
  return r == -1 ? -(intptr_t)errno : 0;
}

intptr_t weft_epoll_remove(int epfd, int fd) {
  struct epoll_event unused = {0};
  ANSWER(epoll_ctl(epfd, EPOLL_CTL_DEL, fd, &unused));
}

static int epoll_once(int epfd, struct epoll_event *events, int capacity,
                      int64_t timeout) {
#ifdef SYS_epoll_pwait2
  static int missing; /* races write the same value */
  if (timeout > 0 && !__atomic_load_n(&missing, __ATOMIC_RELAXED)) {
    struct timespec t = timespec_of(timeout);
    long n = syscall(SYS_epoll_pwait2, epfd, events, capacity, &t, NULL, 0);
    /* Some sandboxes say EPERM for a call they do not know. */
    if (n != -1 || (errno != ENOSYS && errno != EPERM)) return (int)n;
    __atomic_store_n(&missing, 1, __ATOMIC_RELAXED);
  }
#endif
  int64_t ms = timeout <= 0 ? timeout : timeout / 1000000 + (timeout % 1000000 != 0);
  return epoll_wait(epfd, events, capacity,
                    timeout < 0 ? -1 : ms > INT_MAX ? INT_MAX : (int)ms);
}

static uint64_t bits_of_epoll(uint32_t e) {
  uint64_t bits = 0;
  if (e & (EPOLLIN | EPOLLPRI | EPOLLRDHUP)) bits |= WEFT_READABLE;
  if (e & (EPOLLPRI | EPOLLRDHUP)) bits |= WEFT_READ_HANGUP;
  if (e & EPOLLOUT) bits |= WEFT_WRITABLE;
  if (e & (EPOLLHUP | EPOLLERR))
    bits |= WEFT_READABLE | WEFT_WRITABLE | WEFT_READ_HANGUP | WEFT_WRITE_HANGUP;
  if (e & (EPOLLHUP | EPOLLRDHUP)) bits |= WEFT_PEER_CLOSED;
  if (e & EPOLLERR) bits |= WEFT_FAILED;
  return bits;
}

intptr_t weft_epoll_wait(int epfd, struct weft_event *events, intptr_t capacity,
                         int64_t timeout) {
  /* The kernel's events are 12 or 16 bytes long, ours are 16: they are read
     into the same memory and widened in place, from the last to the first. */
  _Static_assert(sizeof(struct epoll_event) <= sizeof(struct weft_event),
                 "events can be widened in place");
  char *raw = (char *)events;
  int64_t deadline = weft_deadline_of(timeout), left = timeout;
  int n;
  while ((n = epoll_once(epfd, (struct epoll_event *)raw, (int)capacity, left)) ==
             -1 &&
         errno == EINTR)
    left = weft_left_until(deadline, timeout);
  if (n == -1) return -(intptr_t)errno;
  for (int i = n - 1; i >= 0; i--) {
    struct epoll_event e;
    struct weft_event w;
    memcpy(&e, raw + (size_t)i * sizeof e, sizeof e);
    w.key = e.data.u64;
    w.bits = bits_of_epoll(e.events);
    memcpy(raw + (size_t)i * sizeof w, &w, sizeof w);
  }
  return n;
}

intptr_t weft_poll_events(intptr_t bits) {
  intptr_t events = 0;
  if (bits & WEFT_READABLE) events |= POLLIN | POLLPRI | POLLRDHUP;
  if (bits & WEFT_WRITABLE) events |= POLLOUT;
  if (bits & WEFT_PEER_CLOSED) events |= POLLRDHUP;
  return events;
}

uint64_t weft_bits_of_poll(intptr_t e) {
  uint64_t bits = 0;
  if (e & (POLLIN | POLLPRI | POLLRDHUP)) bits |= WEFT_READABLE;
  if (e & POLLPRI) bits |= WEFT_READ_HANGUP;
  if (e & POLLOUT) bits |= WEFT_WRITABLE;
  if (e & (POLLHUP | POLLERR))
    bits |= WEFT_READABLE | WEFT_WRITABLE | WEFT_READ_HANGUP | WEFT_WRITE_HANGUP;
  if (e & (POLLHUP | POLLRDHUP)) bits |= WEFT_PEER_CLOSED;
  if (e & POLLERR) bits |= WEFT_FAILED;
  if (e & POLLNVAL) bits |= WEFT_INVALID;
  return bits;
}

static int poll_once(struct pollfd *fds, intptr_t count, int64_t timeout) {
  struct timespec t = timespec_of(timeout < 0 ? 0 : timeout);
  return ppoll(fds, (nfds_t)count, timeout < 0 ? NULL : &t, NULL);
}

/* select, asked and answered as poll is. One closed descriptor fails the whole call,
   so then each is asked whether it is open. */
static int select_once(struct pollfd *fds, intptr_t count, int64_t timeout) {
  fd_set in, out, urgent;
  int top = -1, ready = 0;
  FD_ZERO(&in);
  FD_ZERO(&out);
  FD_ZERO(&urgent);
  for (intptr_t i = 0; i < count; i++) {
    int fd = fds[i].fd;
    if (fds[i].events & POLLIN) FD_SET(fd, &in);
    if (fds[i].events & POLLPRI) FD_SET(fd, &urgent);
    if (fds[i].events & POLLOUT) FD_SET(fd, &out);
    if (fd > top) top = fd;
  }
  struct timespec t = timespec_of(timeout < 0 ? 0 : timeout);
  int n = pselect(top + 1, &in, &out, &urgent, timeout < 0 ? NULL : &t, NULL);
  if (n == -1 && errno != EBADF) return -1;
  for (intptr_t i = 0; i < count; i++) {
    int fd = fds[i].fd, events = 0;
    if (n == -1) {
      if (fcntl(fd, F_GETFD) == -1) events = POLLNVAL;
    } else {
      if (FD_ISSET(fd, &in)) events |= POLLIN;
      if (FD_ISSET(fd, &urgent)) events |= POLLPRI;
      if (FD_ISSET(fd, &out)) events |= POLLOUT;
    }
    fds[i].revents = (short)events;
    ready += events != 0;
  }
  return ready;
}

intptr_t weft_select_limit(void) { return FD_SETSIZE; }

static intptr_t wait_in_set(int once(struct pollfd *, intptr_t, int64_t),
                            struct pollfd *fds, const uint64_t *keys,
                            intptr_t count, struct weft_event *events,
                            intptr_t capacity, int64_t timeout) {
  int64_t deadline = weft_deadline_of(timeout), left = timeout;
  int ready;
  while ((ready = once(fds, count, left)) == -1 && errno == EINTR)
    left = weft_left_until(deadline, timeout);
  if (ready == -1) return -(intptr_t)errno;
  intptr_t n = 0;
  for (intptr_t i = 0; ready > 0 && i < count && n < capacity; i++) {
    if (fds[i].revents == 0) continue;
    events[n].key = keys[i];
    events[n].bits = weft_bits_of_poll(fds[i].revents);
    n++;
    ready--;
  }
  return n;
}

intptr_t weft_poll_wait(struct pollfd *fds, const uint64_t *keys, intptr_t count,
                        struct weft_event *events, intptr_t capacity,
                        int64_t timeout) {
  return wait_in_set(poll_once, fds, keys, count, events, capacity, timeout);
}

intptr_t weft_select_wait(struct pollfd *fds, const uint64_t *keys, intptr_t count,
                          struct weft_event *events, intptr_t capacity,
                          int64_t timeout) {
  return wait_in_set(select_once, fds, keys, count, events, capacity, timeout);
}
