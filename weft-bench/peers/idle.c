/* Hold N idle keep-alive connections to a server on this machine.
 *
 *   idle --port P --connections N [--request PATH]
 *
 * With --request each connection first performs one GET, so that the server
 * holds it as an idle keep-alive connection and not as a new one. Then:
 *
 *   ready N         all are open (standard output)
 *   held H lost L   at SIGTERM or SIGINT: how many the server kept and closed
 *
 * A connection that cannot be opened, or a request that is not answered within
 * five seconds, is an error: exit 1, with a line that says at which one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static _Noreturn void die(const char *what, int at) {
  fprintf(stderr, "idle: connection %d: %s: %s\n", at, what, strerror(errno));
  exit(1);
}

/* Read exactly one response, which must fit into the buffer. */
static int one_response(int fd) {
  static char buffer[65536];
  size_t have = 0, need = 0;
  for (;;) {
    ssize_t n = recv(fd, buffer + have, sizeof buffer - 1 - have, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      if (n == 0) errno = ECONNRESET;
      return -1;
    }
    have += (size_t)n;
    buffer[have] = 0;
    char *end = strstr(buffer, "\r\n\r\n");
    if (end && !need) {
      char *length = strcasestr(buffer, "\r\ncontent-length:");
      if (!length || length > end) {
        errno = EPROTO;
        return -1;
      }
      need = (size_t)(end + 4 - buffer) + strtoul(length + 17, NULL, 10);
    }
    if (need && have >= need) return 0;
    if (have == sizeof buffer - 1) {
      errno = EMSGSIZE;
      return -1;
    }
  }
}

static int open_one(const struct sockaddr_in *server, const char *request, int at) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket", at);
  /* Closed with a reset: 15,000 sockets in TIME_WAIT after every round would
   * make the next ones slower to open. */
  struct linger reset = {.l_onoff = 1, .l_linger = 0};
  struct timeval patience = {.tv_sec = 5};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (connect(fd, (const struct sockaddr *)server, sizeof *server) < 0) die("connect", at);
  if (request) {
    size_t n = strlen(request);
    if (send(fd, request, n, MSG_NOSIGNAL) != (ssize_t)n) die("send", at);
    if (one_response(fd) < 0) die("response", at);
  }
  return fd;
}

int main(int argc, char **argv) {
  int port = 0, connections = 0;
  const char *path = NULL;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--connections")) connections = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--request")) path = argv[i + 1];
    else port = -1;
  }
  if (port < 1 || port > 65535 || connections < 1 || argc % 2 == 0) {
    fprintf(stderr, "usage: idle --port P --connections N [--request PATH]\n");
    return 2;
  }
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  char request[1024], *asked = NULL;
  if (path) {
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n", path, port);
    if (n >= (int)sizeof request) {
      fprintf(stderr, "idle: path too long\n");
      return 2;
    }
    asked = request;
  }

  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTERM);
  sigaddset(&stop, SIGINT);
  struct sockaddr_in server = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)port),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) die("epoll_create1", 0);
  for (int i = 1; i <= connections; i++) {
    int fd = open_one(&server, asked, i);
    struct epoll_event e = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl", i);
  }
  /* Only now: until here the signals simply end the program. */
  sigprocmask(SIG_BLOCK, &stop, NULL);
  int signals = signalfd(-1, &stop, SFD_CLOEXEC);
  struct epoll_event e = {.events = EPOLLIN, .data.fd = signals};
  if (signals < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, signals, &e) < 0) die("signalfd", 0);
  printf("ready %d\n", connections);
  fflush(stdout);

  int lost = 0;
  for (;;) {
    struct epoll_event events[256];
    int n = epoll_wait(epoll, events, 256, -1);
    if (n < 0 && errno != EINTR) die("epoll_wait", 0);
    int stopping = 0;
    for (int i = 0; i < n; i++) {
      if (events[i].data.fd == signals) {
        stopping = 1;
      } else { /* An idle connection speaks only to say that it is over. */
        close(events[i].data.fd);
        lost++;
      }
    }
    if (stopping) {
      printf("held %d lost %d\n", connections - lost, lost);
      return 0;
    }
  }
}
