/* The functions that packetdrill asks a shared object for, over the machine of Machine.hs.
 *
 * The clock is virtual: it moves when packetdrill sleeps, when it waits for a packet, and by a
 * microsecond when it asks for the time twice in a row (it spins at the end of a wait).
 * Packetdrill makes blocking calls on a thread of its own. Such a call waits on a condition; after
 * each step of the machine the clock stands still until it was seen whether the call has ended and, where
 * it has, until its thread has asked for the time, which is how packetdrill notes the end of a call. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <linux/sockios.h>

#include "HsFFI.h"
#include "Rts.h"
#include "Export_stub.h"

/* The table of functions: its layout is packetdrill's, its declaration is ours. */
struct packetdrill_interface {
  void *userdata;
  void (*free)(void *);
  int (*socket)(void *, int, int, int);
  int (*bind)(void *, int, const struct sockaddr *, socklen_t);
  int (*listen)(void *, int, int);
  int (*accept)(void *, int, struct sockaddr *, socklen_t *);
  int (*connect)(void *, int, const struct sockaddr *, socklen_t);
  ssize_t (*read)(void *, int, void *, size_t);
  ssize_t (*readv)(void *, int, const struct iovec *, int);
  ssize_t (*recv)(void *, int, void *, size_t, int);
  ssize_t (*recvfrom)(void *, int, void *, size_t, int, struct sockaddr *, socklen_t *);
  ssize_t (*recvmsg)(void *, int, struct msghdr *, int);
  ssize_t (*write)(void *, int, const void *, size_t);
  ssize_t (*writev)(void *, int, const struct iovec *, int);
  ssize_t (*send)(void *, int, const void *, size_t, int);
  ssize_t (*sendto)(void *, int, const void *, size_t, int, const struct sockaddr *, socklen_t);
  ssize_t (*sendmsg)(void *, int, const struct msghdr *, int);
  int (*fcntl)(void *, int, int, ...);
  int (*ioctl)(void *, int, unsigned long, ...);
  int (*close)(void *, int);
  int (*shutdown)(void *, int, int);
  int (*getsockopt)(void *, int, int, int, void *, socklen_t *);
  int (*setsockopt)(void *, int, int, int, const void *, socklen_t);
  int (*poll)(void *, struct pollfd *, nfds_t, int);
  int (*netdev_send)(void *, const void *, size_t);
  int (*netdev_receive)(void *, void *, size_t *, long long *);
  int (*usleep)(void *, useconds_t);
  int (*gettimeofday)(void *, struct timeval *, struct timezone *);
  int (*epoll_create)(void *, int);
  int (*epoll_ctl)(void *, int, int, int, struct epoll_event *);
  int (*epoll_wait)(void *, int, struct epoll_event *, int, int);
  int (*pipe)(void *, int[2]);
  int (*splice)(void *, int, loff_t *, int, loff_t *, size_t, unsigned int);
};

enum { FDS = 1024, WATCHES = 64, SPIN = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;
static long long now = 1000000000000000LL;
static int waiting;            /* calls that wait */
static unsigned long changes;  /* how often something changed */
static int to_retry;           /* waiting calls that have not looked at the last change */
static int returning;          /* calls that ended and did not note the time */
static int asked_before;       /* the last thing asked for was the time */
static __thread int waited;    /* this thread's call waited */
static long long timeout_at = HS_INT64_MAX; /* the earliest end of a call that waits with a timeout */

static char nonblocking[FDS];
struct watch { int fd; struct epoll_event event; unsigned last; };
static struct watch *watches[FDS];

static int result(long r) {
  if (r >= 0) return (int)r;
  errno = (int)-r;
  return -1;
}

static void enter(void) {
  pthread_mutex_lock(&lock);
  asked_before = 0;
  weft_clock(now);
}

/* Something may have changed: a waiting thread looks again, before the clock moves. */
static void happened(void) {
  changes++;
  to_retry = waiting;
  pthread_cond_broadcast(&changed);
}

static void leave(void) {
  int e = errno;
  happened();
  pthread_mutex_unlock(&lock);
  errno = e;
}

static void settle(void) {
  while (to_retry > 0 || returning > 0) pthread_cond_wait(&settled, &lock);
}

/* Wait for a change; at most until a moment, by the virtual clock. */
static int await(long long until) {
  if (now >= until) return 0;
  unsigned long seen = changes;
  waiting++;
  if (until < timeout_at) timeout_at = until;
  while (changes == seen) pthread_cond_wait(&changed, &lock);
  waiting--;
  if (!waiting) timeout_at = HS_INT64_MAX;
  waited = 1;
  return 1;
}

/* A call that waits looked at the change, and goes on waiting or ends. */
static void retried(void) {
  if (waited && to_retry > 0 && --to_retry == 0) pthread_cond_broadcast(&settled);
}

static void ended(void) {
  if (waited) {
    waited = 0;
    returning++;
  }
}

/* Move the clock, serving what is due on the way. Ends early when a packet stands ready, if asked to. */
static int move(long long target, int (*stop)(void)) {
  for (;;) {
    settle();
    if (stop && stop()) return 1;
    long long next = weft_deadline();
    if (timeout_at < next) next = timeout_at;
    if (next > target) break;
    if (next > now) now = next;
    if (timeout_at <= now) timeout_at = HS_INT64_MAX;
    weft_clock(now);
    weft_step();
    happened();
  }
  settle();
  if (target > now) now = target;
  weft_clock(now);
  return 0;
}

static int known(int fd) { return fd >= 0 && fd < FDS; }

/* Results from here downwards are the numbers of calls that are blocked. */
enum { BLOCKED = -1000000 };

/* May a call with these flags wait? */
static int blocks(int fd, int flags) { return known(fd) && !nonblocking[fd] && !(flags & MSG_DONTWAIT); }

/* The result of a call that has begun, when it has ended. */
static long to_end(long r) {
  if (r <= BLOCKED) happened();
  while (r <= BLOCKED) {
    await(HS_INT64_MAX);
    r = weft_result(r);
    retried();
  }
  ended();
  return r;
}

static int name_out(struct sockaddr *a, socklen_t *len, const unsigned char *b, int port) {
  static const unsigned char zero[12];
  if (!a || !len) return 0;
  if (memcmp(b, zero, 12) == 0) {
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
    memcpy(&in.sin_addr, b + 12, 4);
    memcpy(a, &in, sizeof in < *len ? sizeof in : *len);
    *len = sizeof in;
  } else {
    struct sockaddr_in6 in = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    memcpy(&in.sin6_addr, b, 16);
    memcpy(a, &in, sizeof in < *len ? sizeof in : *len);
    *len = sizeof in;
  }
  return 0;
}

static int name_in(const struct sockaddr *a, unsigned char *b) {
  memset(b, 0, 16);
  if (a->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)a;
    memcpy(b + 12, &in->sin_addr, 4);
    return ntohs(in->sin_port);
  } else {
    const struct sockaddr_in6 *in = (const void *)a;
    memcpy(b, &in->sin6_addr, 16);
    return ntohs(in->sin6_port);
  }
}

/* A descriptor of the machine's own, because packetdrill closes the ones it is left with. */
static int fresh(int flags) {
  int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (fd >= FDS) { close(fd); errno = EMFILE; return -1; }
  if (fd >= 0) nonblocking[fd] = !!(flags & SOCK_NONBLOCK);
  return fd;
}

static int w_socket(void *u, int domain, int type, int protocol) {
  if ((type & 15) != SOCK_STREAM || (protocol && protocol != IPPROTO_TCP)) { errno = EPROTONOSUPPORT; return -1; }
  enter();
  int fd = fresh(type);
  int r = fd >= 0 ? weft_socket(fd, domain == AF_INET6) : -EMFILE;
  leave();
  if (fd >= 0 && r < 0) close(fd);
  return result(r);
}

static int w_bind(void *u, int fd, const struct sockaddr *a, socklen_t len) {
  unsigned char b[16];
  int port = name_in(a, b);
  enter();
  int r = weft_bind(fd, b, port);
  leave();
  return result(r);
}

static int w_listen(void *u, int fd, int backlog) {
  enter();
  int r = weft_listen(fd, backlog);
  leave();
  return result(r);
}

static int w_accept(void *u, int fd, struct sockaddr *a, socklen_t *len) {
  unsigned char b[16];
  int new = fresh(0);
  if (new < 0) return -1;
  enter();
  long r = to_end(weft_accept(fd, new, blocks(fd, 0)));
  leave();
  if (r < 0) { close(new); return result(r); }
  enter();
  int port = weft_peer(new, b);
  leave();
  return name_out(a, len, b, port), new;
}

static int w_connect(void *u, int fd, const struct sockaddr *a, socklen_t len) {
  unsigned char b[16];
  if (a->sa_family == AF_UNSPEC) return 0;
  int port = name_in(a, b);
  enter();
  long r = to_end(weft_connect(fd, b, port, blocks(fd, 0)));
  leave();
  return result(r);
}

static ssize_t receive(int fd, void *buf, size_t n, int flags) {
  if (flags & MSG_PEEK) { errno = EOPNOTSUPP; return -1; }
  enter();
  long r = to_end(weft_receive(fd, buf, n, !!(flags & MSG_WAITALL), blocks(fd, flags)));
  leave();
  return result(r);
}

static ssize_t w_read(void *u, int fd, void *buf, size_t n) { return receive(fd, buf, n, 0); }
static ssize_t w_recv(void *u, int fd, void *buf, size_t n, int flags) { return receive(fd, buf, n, flags); }

static ssize_t w_recvfrom(void *u, int fd, void *buf, size_t n, int flags, struct sockaddr *a, socklen_t *len) {
  return receive(fd, buf, n, flags);
}

static ssize_t receive_vector(int fd, const struct iovec *v, int k, int flags) {
  size_t n = 0;
  for (int i = 0; i < k; i++) n += v[i].iov_len;
  char *buf = malloc(n + 1);
  ssize_t r = receive(fd, buf, n, flags);
  size_t left = r < 0 ? 0 : (size_t)r, at = 0;
  for (int i = 0; i < k && left; i++) {
    size_t m = v[i].iov_len < left ? v[i].iov_len : left;
    memcpy(v[i].iov_base, buf + at, m);
    at += m;
    left -= m;
  }
  free(buf);
  return r;
}

static ssize_t w_readv(void *u, int fd, const struct iovec *v, int k) { return receive_vector(fd, v, k, 0); }

static ssize_t w_recvmsg(void *u, int fd, struct msghdr *m, int flags) {
  m->msg_controllen = 0;
  m->msg_flags = 0;
  return receive_vector(fd, m->msg_iov, m->msg_iovlen, flags);
}

static ssize_t transmit(int fd, const char *buf, size_t n, int flags) {
  enter();
  long r = to_end(weft_send(fd, (void *)buf, n, !!(flags & MSG_MORE), blocks(fd, flags)));
  leave();
  return result(r);
}

static ssize_t w_write(void *u, int fd, const void *buf, size_t n) { return transmit(fd, buf, n, 0); }
static ssize_t w_send(void *u, int fd, const void *buf, size_t n, int flags) { return transmit(fd, buf, n, flags); }

static ssize_t w_sendto(void *u, int fd, const void *buf, size_t n, int flags, const struct sockaddr *a, socklen_t len) {
  if (flags & MSG_FASTOPEN) { errno = EOPNOTSUPP; return -1; }
  return transmit(fd, buf, n, flags);
}

static ssize_t transmit_vector(int fd, const struct iovec *v, int k, int flags) {
  size_t n = 0, at = 0;
  for (int i = 0; i < k; i++) n += v[i].iov_len;
  char *buf = malloc(n + 1);
  for (int i = 0; i < k; i++) {
    memcpy(buf + at, v[i].iov_base, v[i].iov_len);
    at += v[i].iov_len;
  }
  ssize_t r = transmit(fd, buf, n, flags);
  free(buf);
  return r;
}

static ssize_t w_writev(void *u, int fd, const struct iovec *v, int k) { return transmit_vector(fd, v, k, 0); }

static ssize_t w_sendmsg(void *u, int fd, const struct msghdr *m, int flags) {
  return transmit_vector(fd, m->msg_iov, m->msg_iovlen, flags);
}

static int w_fcntl(void *u, int fd, int cmd, ...) {
  va_list list;
  va_start(list, cmd);
  int arg = va_arg(list, int);
  va_end(list);
  if (!known(fd)) { errno = EBADF; return -1; }
  switch (cmd) {
    case F_GETFL: return O_RDWR | (nonblocking[fd] ? O_NONBLOCK : 0);
    case F_SETFL: nonblocking[fd] = !!(arg & O_NONBLOCK); return 0;
    default: return 0;
  }
}

static int w_ioctl(void *u, int fd, unsigned long request, ...) {
  va_list list;
  va_start(list, request);
  int *out = va_arg(list, int *);
  va_end(list);
  int queues[3];
  if (request == FIONBIO) { if (known(fd)) nonblocking[fd] = *out != 0; return 0; }
  enter();
  int r = weft_queues(fd, queues);
  leave();
  if (r < 0) return result(r);
  switch (request) {
    case SIOCINQ: *out = queues[0]; return 0;
    case SIOCOUTQ: *out = queues[1]; return 0;
    case SIOCOUTQNSD: *out = queues[2]; return 0;
    default: errno = EINVAL; return -1;
  }
}

static int w_close(void *u, int fd) {
  enter();
  long r = weft_close(fd);
  if (known(fd)) { free(watches[fd]); watches[fd] = NULL; }
  /* What lingers without being waited for goes on. */
  r = r <= BLOCKED && !blocks(fd, 0) ? 0 : to_end(r);
  leave();
  if (r >= 0 || r == -EBADF) { int c = close(fd); if (r < 0) return c; }
  return result(r);
}

static int w_shutdown(void *u, int fd, int how) {
  enter();
  int r = weft_shutdown(fd, how);
  leave();
  return result(r);
}

static int information(int fd, void *value, socklen_t *len) {
  unsigned x[16] = {0};
  struct tcp_info i = {0};
  enter();
  weft_info(fd, x);
  leave();
  i.tcpi_state = x[0];
  i.tcpi_snd_cwnd = x[1];
  i.tcpi_snd_ssthresh = x[2];
  i.tcpi_unacked = x[3];
  i.tcpi_backoff = x[4];
  i.tcpi_rtt = x[5];
  i.tcpi_rttvar = x[6];
  i.tcpi_snd_mss = x[7];
  if (*len > sizeof i) *len = sizeof i;
  memcpy(value, &i, *len);
  return 0;
}

static int w_getsockopt(void *u, int fd, int level, int name, void *value, socklen_t *len) {
  if (level == IPPROTO_TCP && name == TCP_INFO) return information(fd, value, len);
  enter();
  int v = 0, r = weft_get_option(fd, level, name, &v);
  leave();
  if (r < 0) return result(r);
  if (level == SOL_SOCKET && name == SO_LINGER) {
    struct linger l = {.l_onoff = v >= 0, .l_linger = v >= 0 ? v : 0};
    if (*len > sizeof l) *len = sizeof l;
    memcpy(value, &l, *len);
    return 0;
  }
  if (*len > sizeof v) *len = sizeof v;
  memcpy(value, &v, *len);
  return 0;
}

static int w_setsockopt(void *u, int fd, int level, int name, const void *value, socklen_t len) {
  long long v = 0;
  if (level == SOL_SOCKET && name == SO_LINGER) {
    struct linger l = {0};
    memcpy(&l, value, len < sizeof l ? len : sizeof l);
    v = l.l_onoff ? l.l_linger : -1;
  } else if (level == IPPROTO_TCP && name == TCP_CONGESTION) {
    // Its bytes, the first of which is the least.
    for (int i = strnlen(value, len < 7 ? len : 7); i-- > 0;) v = v << 8 | ((const unsigned char *)value)[i];
  } else if (len < sizeof(int)) {
    if (len == 1) v = *(const char *)value; else { errno = EINVAL; return -1; }
  } else {
    v = *(const int *)value;
  }
  enter();
  int r = weft_set_option(fd, level, name, v);
  leave();
  return result(r);
}

static int poll_once(struct pollfd *fds, nfds_t n) {
  int ready = 0;
  for (nfds_t i = 0; i < n; i++) {
    fds[i].revents = fds[i].fd < 0 ? 0 : weft_poll(fds[i].fd) & (fds[i].events | POLLERR | POLLHUP | POLLNVAL);
    ready += fds[i].revents != 0;
  }
  return ready;
}

static int w_poll(void *u, struct pollfd *fds, nfds_t n, int timeout) {
  enter();
  long long until = timeout < 0 ? HS_INT64_MAX : now + 1000LL * timeout;
  int r;
  for (;;) {
    r = poll_once(fds, n);
    retried();
    if (r || timeout == 0 || !await(until)) break;
  }
  ended();
  leave();
  return r;
}

static int w_epoll_create(void *u, int size) {
  enter();
  int fd = fresh(0);
  if (fd >= 0) watches[fd] = calloc(WATCHES, sizeof(struct watch));
  for (int i = 0; fd >= 0 && i < WATCHES; i++) watches[fd][i].fd = -1;
  leave();
  return fd;
}

static int w_epoll_ctl(void *u, int ep, int op, int fd, struct epoll_event *event) {
  if (!known(ep) || !watches[ep]) { errno = EINVAL; return -1; }
  struct watch *free_one = NULL, *found = NULL;
  enter();
  for (int i = 0; i < WATCHES; i++) {
    struct watch *w = &watches[ep][i];
    if (w->fd == fd) found = w;
    if (w->fd < 0 && !free_one) free_one = w;
  }
  int e = 0;
  if (op == EPOLL_CTL_ADD) {
    if (found) e = EEXIST;
    else if (!free_one) e = ENOSPC;
    else *free_one = (struct watch){fd, *event, 0};
  } else if (!found) e = ENOENT;
  else if (op == EPOLL_CTL_DEL) found->fd = -1;
  else *found = (struct watch){fd, *event, 0};
  leave();
  if (!e) return 0;
  errno = e;
  return -1;
}

static int epoll_once(int ep, struct epoll_event *out, int most) {
  int n = 0;
  for (int i = 0; i < WATCHES && n < most; i++) {
    struct watch *w = &watches[ep][i];
    if (w->fd < 0) continue;
    unsigned mask = weft_poll(w->fd) & (w->event.events | EPOLLERR | EPOLLHUP);
    unsigned shown = w->event.events & EPOLLET ? mask & ~w->last : mask;
    w->last = mask;
    if (!shown) continue;
    out[n].events = mask;
    out[n++].data = w->event.data;
    if (w->event.events & EPOLLONESHOT) w->event.events = 0;
  }
  return n;
}

static int w_epoll_wait(void *u, int ep, struct epoll_event *out, int most, int timeout) {
  if (!known(ep) || !watches[ep]) { errno = EINVAL; return -1; }
  enter();
  long long until = timeout < 0 ? HS_INT64_MAX : now + 1000LL * timeout;
  int r;
  for (;;) {
    r = epoll_once(ep, out, most);
    retried();
    if (r || timeout == 0 || !await(until)) break;
  }
  ended();
  leave();
  return r;
}

static int w_pipe(void *u, int fds[2]) { return pipe(fds); }

static int w_splice(void *u, int in, loff_t *in_at, int out, loff_t *out_at, size_t n, unsigned flags) {
  errno = EINVAL;
  return -1;
}

static int w_netdev_send(void *u, const void *buf, size_t n) {
  enter();
  settle();
  weft_packet_in((void *)buf, n);
  leave();
  return 0;
}

static unsigned char ready[65536];
static long ready_size;
static long long ready_at;

static int packet_ready(void) {
  if (!ready_size) ready_size = weft_packet_out(ready, sizeof ready, &ready_at);
  return ready_size > 0;
}

/* The next packet, or nothing after ten hours in which none came. */
static int w_netdev_receive(void *u, void *buf, size_t *n, long long *at) {
  enter();
  long long target = now + 36000000000LL;
  settle();
  /* The clock stays where it is if nothing can come. */
  while (!packet_ready()) {
    long long next = weft_deadline();
    if (timeout_at < next) next = timeout_at;
    if (next > target) break;
    move(next, packet_ready);
  }
  if (ready_size > 0) {
    if ((size_t)ready_size < *n) *n = ready_size;
    memcpy(buf, ready, *n);
    *at = ready_at;
    ready_size = 0;
  } else {
    *n = 0;
    *at = now;
  }
  leave();
  return 0;
}

static int w_usleep(void *u, useconds_t usec) {
  enter();
  move(now + usec + SPIN, NULL);
  leave();
  return 0;
}

static int w_gettimeofday(void *u, struct timeval *tv, struct timezone *tz) {
  pthread_mutex_lock(&lock);
  if (returning > 0) {
    returning--;
    pthread_cond_broadcast(&settled);
  } else if (asked_before) {
    if (weft_deadline() <= now + 1) move(now + 1, NULL);
    else now++;
  }
  asked_before = 1;
  tv->tv_sec = now / 1000000;
  tv->tv_usec = now % 1000000;
  pthread_mutex_unlock(&lock);
  return 0;
}

static void w_free(void *u) {}

void packetdrill_interface_init(const char *flags, struct packetdrill_interface *ifc) {
  RtsConfig config = defaultRtsConfig;
  int argc = 1;
  char *argv[] = {"packetdrill", NULL};
  char **pargv = argv;
  config.rts_opts_enabled = RtsOptsAll;
  config.rts_opts = "-V0 -N1 -Fd0 --install-signal-handlers=no";
  hs_init_ghc(&argc, &pargv, config);
  weft_start(now, (void *)flags);
  *ifc = (struct packetdrill_interface){
      .free = w_free, .socket = w_socket, .bind = w_bind, .listen = w_listen, .accept = w_accept,
      .connect = w_connect, .read = w_read, .readv = w_readv, .recv = w_recv, .recvfrom = w_recvfrom,
      .recvmsg = w_recvmsg, .write = w_write, .writev = w_writev, .send = w_send, .sendto = w_sendto,
      .sendmsg = w_sendmsg, .fcntl = w_fcntl, .ioctl = w_ioctl, .close = w_close, .shutdown = w_shutdown,
      .getsockopt = w_getsockopt, .setsockopt = w_setsockopt, .poll = w_poll,
      .netdev_send = w_netdev_send, .netdev_receive = w_netdev_receive, .usleep = w_usleep,
      .gettimeofday = w_gettimeofday, .epoll_create = w_epoll_create, .epoll_ctl = w_epoll_ctl,
      .epoll_wait = w_epoll_wait, .pipe = w_pipe, .splice = w_splice,
  };
}
