/* Ask a TCP stack, over the sockets of the system.
 *
 *   tcp-ask MODE ADDRESS CONNECTIONS SECONDS
 *
 *   ask      64 bytes to the port for echo (7) and back, on each connection, again and again
 *   connect  the same once on each connection, which then ends; CONNECTIONS at a time
 *   send     as many bytes as are taken, to the port that discards them (9)
 *   receive  as many as come, from the port that makes them (19)
 *   page     as ask, but a request of HTTP (port 80) and its answer, which always has the length of the first
 *
 * Writes a line "ready" when all connections are there and have been answered once, then a line of
 * JSON after that time, and holds the connections until it is ended.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { REQUEST = 64, LARGE = 262144, FIRST = 64 };

static struct { int got; } *of; /* by descriptor: bytes of the answer so far */
static struct sockaddr_in server;
static int epoll;
static char buffer[LARGE];
static const char *message = buffer;
static int size = REQUEST, answer = REQUEST; /* of a message, and of its answer; 0 while this is unknown */

static _Noreturn void die(const char *what) {
  fprintf(stderr, "tcp-ask: %s: %s\n", what, strerror(errno));
  exit(1);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void request(int fd) {
  of[fd].got = 0;
  if (send(fd, message, (size_t)size, MSG_NOSIGNAL) != size) die("send");
}

/* Connected when it becomes writable. */
static void begin(void) {
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
  if (fd < 0) die("socket");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(fd, (struct sockaddr *)&server, sizeof server) < 0 && errno != EINPROGRESS) die("connect");
  of[fd].got = -1;
  struct epoll_event e = {.events = EPOLLOUT, .data.fd = fd};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) die("epoll_ctl");
}

static void connected(int fd, unsigned interest) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error) errno = error, die("connect");
  struct epoll_event e = {.events = interest, .data.fd = fd};
  epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &e);
}

/* The length of the answer to a request of HTTP whose first bytes are in the buffer, its head among them. */
static int length_of_page(ssize_t got) {
  buffer[got] = 0;
  char *end = strstr(buffer, "\r\n\r\n"), *length = strcasestr(buffer, "\r\ncontent-length:");
  if (strncmp(buffer, "HTTP/1.1 200 ", 13) || !end || !length || length > end) errno = EPROTO, die("the page");
  return (int)(end - buffer) + 4 + atoi(length + 17);
}

/* The server may have to start first. */
static void await_server(void) {
  for (int tries = 0; tries < 1000; tries++) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct timeval patience = {.tv_sec = 1};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    int r = connect(fd, (struct sockaddr *)&server, sizeof server);
    close(fd);
    if (r == 0) return;
    usleep(10000);
  }
  die("nobody answers");
}

static void ready(void) {
  puts("ready");
  fflush(stdout);
}

int main(int argc, char **argv) {
  if (argc != 5) return fprintf(stderr, "usage: tcp-ask MODE ADDRESS CONNECTIONS SECONDS\n"), 2;
  int asks = !strcmp(argv[1], "ask"), connects = !strcmp(argv[1], "connect");
  int sends = !strcmp(argv[1], "send"), pages = !strcmp(argv[1], "page"), connections = atoi(argv[3]);
  double seconds = atof(argv[4]);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  of = calloc((size_t)limit.rlim_cur, sizeof *of);
  server.sin_family = AF_INET;
  server.sin_port = htons(pages ? 80 : asks || connects ? 7 : sends ? 9 : 19);
  if (pages) {
    asks = 1, answer = 0;
    message = "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
    size = (int)strlen(message);
  }
  if (!of || inet_pton(AF_INET, argv[2], &server.sin_addr) != 1 || connections < 1) die("arguments");
  epoll = epoll_create1(EPOLL_CLOEXEC);
  await_server();

  /* Few at a time begin: what a burst of them loses comes again after a second only. */
  int begun = 0, open = 0, is_ready = connects;
  if (connects) ready();
  long long count = 0;
  double start = now(), end = start + seconds, limit_of_setup = start + 60;
  while (begun < connections && begun < FIRST) begin(), begun++;
  for (;;) {
    struct epoll_event events[512];
    int n = epoll_wait(epoll, events, 512, 10);
    for (int i = 0; i < n; i++) {
      int fd = events[i].data.fd;
      if (of[fd].got < 0) {
        connected(fd, sends ? EPOLLOUT : EPOLLIN);
        of[fd].got = 0;
        if (asks || connects) request(fd);
        else open++;
        continue;
      }
      if (sends) {
        ssize_t sent = send(fd, buffer, LARGE, MSG_NOSIGNAL);
        if (sent > 0) count += sent;
        else if (errno != EAGAIN) die("send");
        continue;
      }
      ssize_t got = recv(fd, buffer, LARGE - 1, 0);
      if (got < 0 && errno == EAGAIN) continue;
      if (got < 0 || (got == 0 && !(connects && of[fd].got == answer))) die("receive");
      if (pages && !answer) answer = length_of_page(got);
      if (!asks && !connects) {
        count += got;
      } else if (got == 0) {
        close(fd);
        count++;
        begin();
      } else if ((of[fd].got += (int)got) >= answer) {
        if (of[fd].got > answer) errno = EPROTO, die("an answer of another length");
        if (connects) {
          shutdown(fd, SHUT_WR);
        } else if (is_ready) {
          count++;
          request(fd);
        } else {
          open++;
          if (begun < connections) begin(), begun++;
        }
      }
    }
    double t = now();
    if (!is_ready && t > limit_of_setup) die("the connections take a minute");
    if (!is_ready && open == connections) {
      is_ready = 1;
      ready();
      count = 0;
      start = now();
      end = start + seconds;
      if (asks)
        for (int fd = 0; fd < (int)limit.rlim_cur; fd++)
          if (of[fd].got == answer) request(fd);
    } else if (is_ready && t >= end) {
      printf("{\"count\":%lld,\"seconds\":%.6f}\n", count, t - start);
      fflush(stdout);
      for (;;) pause();
    }
  }
}
