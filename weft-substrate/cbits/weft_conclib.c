/* What ConcLib_MP asks of Linux: readiness of descriptors (epoll), a way to interrupt the wait for
   them (an eventfd), and asynchronous reads and writes (AIO), whose completions make another
   eventfd ready. Functions answer -errno where they fail. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The context of AIO is made for the first request, and destroyed at the end of the run: Linux takes some milliseconds to
   destroy one, and what the collector frees is freed by an OS thread that keeps others of GHC's waiting. */
struct events {
  int epoll, kick, completed;
  unsigned requests;
  pthread_mutex_t lock;       /* of the two that follow, while requests may begin */
  int tried;                  /* is there a context, or can there be none? */
  _Atomic(aio_context_t) aio; /* 0: there is none */
};

static int watch(int epoll, int fd, uint32_t events) {
  struct epoll_event e = {.events = events, .data.fd = fd};
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) ? -errno : 0;
}

/* No request is under way, and none begins any more. */
void weft_conclib_end(struct events *w) {
  if (w->aio) syscall(SYS_io_destroy, w->aio);
  w->aio = 0;
}

void weft_conclib_free(struct events *w) {
  weft_conclib_end(w);
  pthread_mutex_destroy(&w->lock);
  if (w->completed >= 0) close(w->completed);
  if (w->kick >= 0) close(w->kick);
  if (w->epoll >= 0) close(w->epoll);
  free(w);
}

/* NULL, with errno, if there are no descriptors left. */
struct events *weft_conclib_new(int requests) {
  struct events *w = calloc(1, sizeof *w);
  if (!w) return NULL;
  w->requests = (unsigned)requests;
  pthread_mutex_init(&w->lock, NULL);
  w->epoll = epoll_create1(EPOLL_CLOEXEC);
  w->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  w->completed = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (w->epoll < 0 || w->kick < 0 || w->completed < 0 || watch(w->epoll, w->kick, EPOLLIN) || watch(w->epoll, w->completed, EPOLLIN)) {
    int e = errno;
    weft_conclib_free(w);
    errno = e;
    return NULL;
  }
  return w;
}

static aio_context_t context(struct events *w) {
  aio_context_t made = 0;
  if (w->aio) return w->aio;
  pthread_mutex_lock(&w->lock);
  if (!w->tried && syscall(SYS_io_setup, w->requests, &made) == 0) w->aio = made;
  w->tried = 1;
  pthread_mutex_unlock(&w->lock);
  return w->aio;
}

/* Edge-triggered, in both directions, until it is closed. */
int weft_conclib_watch(struct events *w, int fd) {
  int r = watch(w->epoll, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  return r == -EEXIST ? 0 : r;
}

void weft_conclib_kick(struct events *w) {
  uint64_t one = 1;
  (void)!write(w->kick, &one, sizeof one);
}

/* Wait for the given number of milliseconds, or without end (-1). Fills two numbers for each event: the
   descriptor, and 1 (it can be read), 2 (written) or 3; a descriptor of -1 means that AIO has
   completed something. Answers how many events. */
int weft_conclib_wait(struct events *w, int timeout, int32_t *out, int most) {
  struct epoll_event e[256];
  int n = epoll_wait(w->epoll, e, most < 256 ? most : 256, timeout), filled = 0;
  uint64_t ignored;
  if (n < 0) return errno == EINTR ? 0 : -errno;
  for (int i = 0; i < n; i++) {
    int fd = e[i].data.fd, broken = (e[i].events & (EPOLLERR | EPOLLHUP)) != 0;
    if (fd == w->kick) {
      /* A look without a wait leaves it to the waiting thread. */
      if (timeout != 0) (void)!read(fd, &ignored, sizeof ignored);
      continue;
    }
    if (fd == w->completed) (void)!read(fd, &ignored, sizeof ignored);
    out[2 * filled] = fd == w->completed ? -1 : fd;
    out[2 * filled + 1] = (broken || (e[i].events & (EPOLLIN | EPOLLRDHUP)) ? 1 : 0) | (broken || (e[i].events & EPOLLOUT) ? 2 : 0);
    filled++;
  }
  return filled;
}

/* -EOPNOTSUPP where a request would block: AIO is asynchronous only past the page cache. */
int weft_conclib_submit(struct events *w, int writes, int fd, void *buffer, uint64_t length, int64_t offset, void *token) {
  struct iocb c = {
      .aio_data = (uint64_t)(uintptr_t)token,
      .aio_lio_opcode = writes ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
      .aio_fildes = fd,
      .aio_buf = (uint64_t)(uintptr_t)buffer,
      .aio_nbytes = length,
      .aio_offset = offset,
      .aio_flags = IOCB_FLAG_RESFD,
      .aio_resfd = w->completed,
  };
  struct iocb *list = &c;
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return -errno;
  aio_context_t aio = flags & O_DIRECT ? context(w) : 0;
  if (!aio) return -EOPNOTSUPP;
  return syscall(SYS_io_submit, aio, 1, &list) == 1 ? 0 : -errno;
}

/* Fills two numbers for each request that is complete: its token, and bytes or -errno. */
int weft_conclib_reap(struct events *w, int64_t *out, int most) {
  struct io_event e[64];
  struct timespec none = {0, 0};
  int n = syscall(SYS_io_getevents, w->aio, 0, most < 64 ? most : 64, e, &none);
  for (int i = 0; i < n; i++) {
    out[2 * i] = (int64_t)e[i].data;
    out[2 * i + 1] = e[i].res;
  }
  return n < 0 ? 0 : n;
}

/* Whether a descriptor can be read (or written) within this number of milliseconds: 0, or -EAGAIN. To poll(2) a negative
   number is one to be ignored, and one that is closed is ready. */
int64_t weft_conclib_ready(int fd, int writes, int timeout) {
  if (fd < 0) return -EBADF;
  struct pollfd p = {.fd = fd, .events = writes ? POLLOUT : POLLIN};
  int n = poll(&p, 1, timeout);
  return n < 0 ? -errno : n == 0 ? -EAGAIN : p.revents & POLLNVAL ? -EBADF : 0;
}

/* What became of a connect. */
int64_t weft_conclib_connected(int fd) {
  int e = 0;
  socklen_t n = sizeof e;
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) ? -errno : -e;
}

int weft_conclib_nonblocking(int fd, int on) {
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return -errno;
  return fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) ? -errno : 0;
}

/* The calls of both libraries. Each answers a number, or -errno. */
static int64_t answer(int64_t r) { return r < 0 ? -errno : r; }
int64_t weft_conclib_read(int fd, void *p, uint64_t n) { return answer(read(fd, p, n)); }
int64_t weft_conclib_write(int fd, const void *p, uint64_t n) { return answer(write(fd, p, n)); }
int64_t weft_conclib_accept(int fd, int nonblocking) { return answer(accept4(fd, NULL, NULL, SOCK_CLOEXEC | (nonblocking ? SOCK_NONBLOCK : 0))); }
int64_t weft_conclib_connect(int fd, const void *p, uint64_t n) { return answer(connect(fd, p, n)); }
int64_t weft_conclib_pread(int fd, void *p, uint64_t n, int64_t at) { return answer(pread(fd, p, n, at)); }
int64_t weft_conclib_pwrite(int fd, const void *p, uint64_t n, int64_t at) { return answer(pwrite(fd, p, n, at)); }
