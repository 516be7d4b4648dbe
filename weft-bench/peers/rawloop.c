/* The least that a single-threaded HTTP server can do: the floor that the other
 * servers are compared with.
 *
 *   rawloop --port P [--host ADDRESS] [--answer page|hello]
 *
 * One thread, one edge-triggered epoll. A connection is registered once, for
 * reading and writing; each request then costs one recv and one send (and its
 * share of an epoll_wait). Requests are not understood, only counted: each empty
 * line ends one and is answered with the same 305-byte page, or the same greeting. So it needs
 * no buffer per connection, only how many bytes it still owes.
 *
 * Not here, because it is a floor and not a server: request bodies, methods,
 * `Connection: close`, time-outs, fairness towards a client that never stops
 * sending. The Date header is that of the start.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  BODY_BYTES = 305,
  COPIES = 16, /* answers that one send can carry to a client that pipelines */
  EVENTS = 512,
  RECEIVE_BYTES = 16384
};

/* How far the end of a request has been seen; kept between reads, because a
 * request may be split anywhere. The automaton accepts CR LF CR LF. */
enum end { NOTHING, CR, CR_LF, CR_LF_CR };

struct connection {
  uint64_t owed; /* bytes of answers not yet sent */
  enum end end;
};

static struct connection *connections; /* indexed by descriptor */
static int descriptors;
static char answers[COPIES * 1024]; /* COPIES equal answers, one after another */
static size_t answer_bytes;

static _Noreturn void die(const char *what) {
  fprintf(stderr, "rawloop: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void prepare_answers(int hello) {
  char date[64], body[BODY_BYTES + 1], one[1024];
  time_t now = time(NULL);
  struct tm tm;
  strftime(date, sizeof date, "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&now, &tm));
  int n = snprintf(body, sizeof body,
                   "<!DOCTYPE html><html><head><title>A page</title></head><body><p>");
  memset(body + n, 'w', sizeof body - (size_t)n);
  const char *tail = "</p></body></html>\n";
  memcpy(body + BODY_BYTES - strlen(tail), tail, strlen(tail) + 1);
  if (hello) strcpy(body, "Hello, world!");
  n = snprintf(one, sizeof one,
               "HTTP/1.1 200 OK\r\nServer: rawloop\r\nDate: %s\r\n"
               "Content-Type: %s\r\nContent-Length: %d\r\n"
               "Last-Modified: %s\r\nETag: \"rawloop-305\"\r\n\r\n%s",
               date, hello ? "text/plain" : "text/html", (int)strlen(body), date, body);
  answer_bytes = (size_t)n;
  for (size_t i = 0; i < COPIES; i++)
    memcpy(answers + i * answer_bytes, one, answer_bytes);
}

static uint64_t count_requests(enum end *state, const char *p, ssize_t n) {
  uint64_t requests = 0;
  enum end s = *state;
  /* Most reads are exactly one request: search for the rare byte only. */
  for (const char *stop = p + n; p < stop; p++) {
    if (s == NOTHING) {
      p = memchr(p, '\r', (size_t)(stop - p));
      if (!p) break;
      s = CR;
    } else if (*p == '\r') {
      s = s == CR_LF ? CR_LF_CR : CR;
    } else if (*p == '\n' && s == CR) {
      s = CR_LF;
    } else if (*p == '\n' && s == CR_LF_CR) {
      requests++;
      s = NOTHING;
    } else {
      s = NOTHING;
    }
  }
  *state = s;
  return requests;
}

/* Send what is owed until the socket is full; 0 when the connection is dead.
 * A full socket is left alone: the next edge says when there is room. */
static int pay(int fd, struct connection *c) {
  while (c->owed) {
    /* The first answer may have been sent in part: begin inside it. */
    size_t begun = (size_t)((answer_bytes - c->owed % answer_bytes) % answer_bytes);
    size_t n = COPIES * answer_bytes - begun;
    if (n > c->owed) n = (size_t)c->owed;
    ssize_t sent = send(fd, answers + begun, n, MSG_NOSIGNAL);
    if (sent >= 0) {
      c->owed -= (uint64_t)sent;
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }
  return 1;
}

/* Read until the socket is drained, answering as we go; 0 when it is over.
 * A read that leaves room in the buffer has drained a stream socket: what comes
 * later raises a new edge. Only when the peer is already known to have closed
 * is there more to see (the end of file) without another edge. */
static int serve(int fd, struct connection *c, uint32_t events) {
  static char buffer[RECEIVE_BYTES];
  int closing = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
  if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return pay(fd, c);
  for (;;) {
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n > 0) {
      c->owed += count_requests(&c->end, buffer, n) * answer_bytes;
      if (!pay(fd, c)) return 0;
      if (n < RECEIVE_BYTES && !closing) return 1;
    } else if (n == 0) {
      /* Half-closed: what is owed may still go out, on later edges. */
      return c->owed != 0 && pay(fd, c) && c->owed != 0;
    } else if (errno != EINTR) {
      return (errno == EAGAIN || errno == EWOULDBLOCK) && pay(fd, c);
    }
  }
}

/* Accept all that wait. `spare` is a descriptor kept back: when none is left it
 * is given up for long enough to turn one client away, because a waiting
 * connection would otherwise wake the loop for ever. */
static void accept_all(int epoll, int listener, int *spare) {
  for (;;) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE) return;
      close(*spare);
      fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
      if (fd >= 0) close(fd);
      *spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
      return;
    }
    if (fd >= descriptors) {
      close(fd);
      continue;
    }
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections[fd] = (struct connection){0, NOTHING};
    struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                            .data.fd = fd};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e) < 0) close(fd);
  }
}

static int listen_on(const char *host, int port) {
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, host, &a.sin_addr) != 1) {
    errno = EINVAL;
    die(host);
  }
  int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0) die("bind");
  if (listen(fd, 4096) < 0) die("listen");
  return fd;
}

int main(int argc, char **argv) {
  const char *host = "127.0.0.1";
  int port = 0, hello = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--host")) host = argv[i + 1];
    else if (!strcmp(argv[i], "--answer")) hello = !strcmp(argv[i + 1], "hello");
    else port = -1;
  }
  if (port < 1 || port > 65535 || argc % 2 == 0) {
    fprintf(stderr, "usage: rawloop --port P [--host ADDRESS] [--answer page|hello]\n");
    return 2;
  }
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) < 0) die("getrlimit");
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  descriptors = limit.rlim_max > 1 << 20 ? 1 << 20 : (int)limit.rlim_max;
  connections = calloc((size_t)descriptors, sizeof *connections);
  if (!connections) die("calloc");
  prepare_answers(hello);

  int listener = listen_on(host, port), epoll = epoll_create1(EPOLL_CLOEXEC);
  int spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (epoll < 0) die("epoll_create1");
  /* Level-triggered, so that a connection turned away or left over by an error
   * is met again. */
  struct epoll_event e = {.events = EPOLLIN, .data.fd = listener};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e) < 0) die("epoll_ctl");

  static struct epoll_event events[EVENTS];
  for (;;) {
    int n = epoll_wait(epoll, events, EVENTS, -1);
    if (n < 0 && errno != EINTR) die("epoll_wait");
    for (int i = 0; i < n; i++) {
      int fd = events[i].data.fd;
      if (fd == listener) accept_all(epoll, listener, &spare);
      else if (!serve(fd, &connections[fd], events[i].events)) close(fd);
    }
  }
}
