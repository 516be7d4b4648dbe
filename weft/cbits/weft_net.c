/* Calls that set up sockets, pipes and randomness: each answers a number that is
   not negative, or a negated errno, and none of them can block. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER(call) \
  do { \
    long answer; \
    do answer = (call); while (answer < 0 && errno == EINTR); \
    return answer < 0 ? -errno : (int)answer; \
  } while (0)

/* How long a name can be that is a number. */
#define NAME_BYTES 7

int weft_socket(int family, int type, int protocol) {
  ANSWER(socket(family, type | SOCK_NONBLOCK | SOCK_CLOEXEC, protocol));
}

/* A descriptor that other code opened: its family and type (what is no socket fails
   with ENOTSOCK, what is not open with EBADF). Nothing is changed before both are known.
   The family is asked of its address, because not every system has SO_DOMAIN. */
int weft_adopt(int fd, int *what) {
  struct sockaddr_storage address;
  socklen_t length = sizeof address, size = sizeof what[1];
  int flags;
  memset(&address, 0, sizeof address);
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &what[1], &size) < 0) return -errno;
  if (getsockname(fd, (struct sockaddr *)&address, &length) < 0) return -errno;
  what[0] = address.ss_family;
  if ((flags = fcntl(fd, F_GETFD)) < 0 || fcntl(fd, F_SETFD, flags | FD_CLOEXEC) < 0) return -errno;
  if ((flags = fcntl(fd, F_GETFL)) < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return -errno;
  return 0;
}

int weft_bind(int fd, const void *address, int length) {
  ANSWER(bind(fd, address, (socklen_t)length));
}

int weft_listen(int fd, int backlog) { ANSWER(listen(fd, backlog)); }

int weft_shutdown(int fd, int how) { ANSWER(shutdown(fd, how)); }

/* An option as a number: that of an int, but for SO_LINGER, which is the seconds, or -1 where
   closing does not linger, and for TCP_CONGESTION, whose number has the bytes of the name, the
   first of which is the least. Seconds are refused: close would wait for them, also that of a
   non-blocking socket, and with it the worker and all that it runs. */
#ifdef TCP_CONGESTION
static int is_name(int level, int name) { return level == IPPROTO_TCP && name == TCP_CONGESTION; }
#else
static int is_name(int level, int name) { return (void)level, (void)name, 0; }
#endif

int weft_getsockopt(int fd, int level, int name, int64_t *value) {
  int number = 0;
  struct linger linger = {0, 0};
  char text[16] = {0};
  int lingers = level == SOL_SOCKET && name == SO_LINGER, named = is_name(level, name);
  void *memory = lingers ? (void *)&linger : named ? (void *)text : (void *)&number;
  socklen_t length = lingers ? sizeof linger : named ? sizeof text : sizeof number;
  if (getsockopt(fd, level, name, memory, &length) < 0) return -errno;
  if (named && text[NAME_BYTES] != 0) return -EOVERFLOW;
  *value = lingers ? (linger.l_onoff ? linger.l_linger : -1) : number;
  for (int i = 0; named && i < NAME_BYTES && text[i] != 0; i++) *value |= (int64_t)(unsigned char)text[i] << (8 * i);
  return 0;
}

int weft_setsockopt(int fd, int level, int name, int64_t value) {
  if (is_name(level, name)) {
    char text[NAME_BYTES + 1] = {0};
    if (value >> (8 * NAME_BYTES) != 0) return -EINVAL;
    for (int i = 0; i < NAME_BYTES; i++) text[i] = (char)(value >> (8 * i));
    ANSWER(setsockopt(fd, level, name, text, (socklen_t)strlen(text)));
  }
  if (value < INT_MIN || value > INT_MAX) return -EINVAL;
  if (level == SOL_SOCKET && name == SO_LINGER) {
    struct linger linger = {value == 0, 0};
    if (value > 0) return -EOPNOTSUPP;
    ANSWER(setsockopt(fd, level, name, &linger, sizeof linger));
  }
  int number = (int)value;
  ANSWER(setsockopt(fd, level, name, &number, sizeof number));
}

/* An unbound Unix-domain address has only its family; the bytes after it are
   cleared so that it reads as an empty path. */
static int name_of(int (*get)(int, struct sockaddr *, socklen_t *), int fd, void *address, int room) {
  socklen_t length = (socklen_t)room;
  memset(address, 0, (size_t)room);
  ANSWER(get(fd, address, &length));
}

int weft_getsockname(int fd, void *address, int room) { return name_of(getsockname, fd, address, room); }

int weft_getpeername(int fd, void *address, int room) { return name_of(getpeername, fd, address, room); }

int weft_pipe(int *ends) { ANSWER(pipe2(ends, O_NONBLOCK | O_CLOEXEC)); }

/* How many bytes a pipe holds; with a size above 0 it is changed first, rounded up by the
   kernel. */
int weft_pipe_capacity(int fd, int size) {
#ifdef F_SETPIPE_SZ
  ANSWER(size > 0 ? fcntl(fd, F_SETPIPE_SZ, size) : fcntl(fd, F_GETPIPE_SZ));
#else
  (void)fd, (void)size;
  return -ENOSYS;
#endif
}

int weft_open_fifo(const char *path, int flags) { ANSWER(open(path, flags | O_NONBLOCK | O_CLOEXEC)); }

int weft_dup(int fd) { ANSWER(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

int weft_set_size(int fd, long long size) { ANSWER(ftruncate(fd, (off_t)size)); }

int weft_getrandom(void *memory, int size) { ANSWER(getrandom(memory, (size_t)size, 0)); }

long long weft_wall_clock(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (long long)t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* The open flags of a mode (0 read, 1 write, 2 both, 3 append, 4 directory, and
   for what must exist 5 write, 6 both).
   O_NONBLOCK does nothing to regular files, and keeps an open of a FIFO or a
   device from waiting. */
int weft_open_flags(int mode, int truncate, int exclusive, int direct) {
  static const int of_mode[] = {O_RDONLY, O_WRONLY | O_CREAT, O_RDWR | O_CREAT,
                                O_WRONLY | O_CREAT | O_APPEND, O_RDONLY | O_DIRECTORY,
                                O_WRONLY, O_RDWR};
  int flags = of_mode[mode] | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
  if (truncate) flags |= O_TRUNC;
  if (exclusive) flags |= O_EXCL;
#ifdef O_DIRECT
  if (direct) flags |= O_DIRECT;
#endif
  return flags;
}
