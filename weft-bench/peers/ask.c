/* Ask a server on this machine: as fast as it answers, or at a fixed rate.
 *
 *   ask URL -c CONNECTIONS -d SECONDS [--rate R | --requests N] [--skip N] [--json]
 *
 * URL is http://ADDRESS:PORT/PATH; a range {A..B} in the path stands for a number
 * that is chosen at random, evenly, for each request. One thread, one epoll.
 *
 * Without --rate the loop is closed: each connection asks again as soon as it has
 * its answer. With it the loop is open: the Nth request is due N/R seconds after the
 * start whatever became of those before it, goes out on the connection that has been
 * free for longest, and waits when none is free. Its latency counts from when it was
 * due, so a server that stalls cannot hide the requests that it kept from being
 * sent. At the end outstanding answers are waited for, for at most two seconds;
 * what is missing then counts as an error and with the time that it has waited.
 *
 * With --requests a connection is for N requests; the last one says `Connection: close`, and its
 * answer has come when the server has closed. Another connection is opened in its place at once;
 * the latency of a first request counts from then. This loop is closed: CONNECTIONS is the offered
 * load (Kerneis & Chroboczek 2009). A connection that the server refuses or resets is an error.
 * --skip leaves the first and the last N samples out of the latencies (but never more than half of
 * them): there are fewer connections under way then.
 *
 * The clock starts when all connections are open, with --requests when the first is
 * begun. It prints one JSON object.
 * Answers must have a Content-Length. Every answer that is not 2xx, and every
 * connection that breaks while it waits for one, is an error; one that the server
 * closes between two requests is opened again and counted apart.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { EVENTS = 512, RECEIVE_BYTES = 1 << 16, HEAD_BYTES = 8192, REQUEST_BYTES = 2048 };

typedef int64_t ns;

enum state { CONNECTING, FREE, WAITING /* for a head */, READING /* a body */, CLOSING /* for the end */ };

struct connection {
  int fd;
  enum state state;
  ns start;            /* when the request was due */
  uint64_t body;       /* bytes of it still to come */
  size_t have;         /* bytes of an incomplete head */
  long asked;          /* requests on this connection so far */
  int good;            /* is the status of its last answer 2xx? */
  char *head;          /* allocated when a head was split */
  struct connection *next; /* in the queue of free ones */
};

/* ---- The arguments ------------------------------------------------------ */

static struct sockaddr_in server;
static char before[REQUEST_BYTES], after[REQUEST_BYTES]; /* around the number */
static int before_bytes, after_bytes;
static uint64_t first, choices; /* the range; no range: choices is 0 */
static double rate;
static int connection_count = 1;
static long requests_each; /* on one connection; 0: any number */
static size_t skip;

/* ---- The results -------------------------------------------------------- */

/* Buckets of a 1,024th of their power of two: three significant digits. */
enum { SUB = 10, BUCKETS = (65 - SUB) << SUB };
static uint64_t histogram[BUCKETS];
static uint64_t answers, recorded, errors, reopened, bytes_received;
static int outstanding; /* requests without an answer so far */
static double latency_sum;
static ns latency_most, behind_most, last_answer;
static int counting;
static ns *kept; /* all latencies in their order, if some are to be skipped */
static size_t kept_count, kept_room;

static struct connection *connections, *free_first, *free_last;
static int epoll, open_count;
static char buffer[RECEIVE_BYTES];

static _Noreturn void die(const char *what) {
  fprintf(stderr, "ask: %s: %s\n", what, strerror(errno));
  exit(1);
}

static ns now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (ns)t.tv_sec * 1000000000 + t.tv_nsec;
}

static size_t bucket_of(uint64_t v) {
  if (v < 2u << SUB) return (size_t)v;
  int shift = 63 - __builtin_clzll(v) - SUB;
  return ((size_t)shift << SUB) + (size_t)(v >> shift);
}

/* The middle of a bucket. */
static double value_of(size_t b) {
  if (b < 2u << SUB) return (double)b;
  size_t shift = (b >> SUB) - 1;
  return ((double)(b - (shift << SUB)) + 0.5) * (double)(UINT64_C(1) << shift);
}

static void record(ns latency) {
  if (latency < 0) latency = 0;
  histogram[bucket_of((uint64_t)latency)]++;
  recorded++;
  latency_sum += (double)latency;
  if (latency > latency_most) latency_most = latency;
}

static void note(ns latency) {
  if (!skip) {
    record(latency);
    return;
  }
  if (kept_count == kept_room) {
    kept_room = kept_room ? 2 * kept_room : 65536;
    if (!(kept = realloc(kept, kept_room * sizeof *kept))) die("realloc");
  }
  kept[kept_count++] = latency;
}

static void record_kept(void) {
  size_t at_each_end = skip < kept_count / 4 ? skip : kept_count / 4;
  for (size_t i = at_each_end; i < kept_count - at_each_end; i++) record(kept[i]);
}

static double percentile(double p) {
  uint64_t seen = 0, wanted = (uint64_t)(p * (double)recorded + 0.999999);
  for (size_t b = 0; b < BUCKETS; b++)
    if (histogram[b] && (seen += histogram[b]) >= wanted) return value_of(b);
  return 0;
}

static uint64_t dice(void) {
  static uint64_t x = UINT64_C(0x9e3779b97f4a7c15);
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}

/* ---- Connections -------------------------------------------------------- */

static void put_free(struct connection *c) {
  c->state = FREE;
  c->next = NULL;
  if (free_last) free_last->next = c; else free_first = c;
  free_last = c;
}

static struct connection *take_free(void) {
  struct connection *c = free_first;
  if (c && !(free_first = c->next)) free_last = NULL;
  return c;
}

static void open_connection(struct connection *c) {
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (c->fd < 0) die("socket");
  /* Closed with a reset, so that no round leaves thousands in TIME_WAIT, at either end. */
  struct linger reset = {.l_onoff = 1, .l_linger = 0};
  int on = 1;
  setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  c->asked = 0;
  if (requests_each) c->start = now();
  if (connect(c->fd, (struct sockaddr *)&server, sizeof server) < 0 && errno != EINPROGRESS)
    die("connect");
  c->state = CONNECTING;
  c->have = 0;
  struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = c};
  if (epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e) < 0) die("epoll_ctl");
}

static void ask(struct connection *c, ns due) {
  char request[2 * REQUEST_BYTES + 64];
  memcpy(request, before, (size_t)before_bytes);
  int n = before_bytes;
  if (choices) n += sprintf(request + n, "%llu", (unsigned long long)(first + dice() % choices));
  memcpy(request + n, after, (size_t)after_bytes);
  n += after_bytes;
  if (++c->asked == requests_each) n += sprintf(request + n - 2, "Connection: close\r\n\r\n") - 2;
  outstanding++;
  c->state = WAITING;
  c->start = due;
  c->have = 0;
  /* A request is far smaller than an empty socket's buffer: it goes as a whole, or
   * the connection is broken, which the next event says. */
  (void)!send(c->fd, request, (size_t)n, MSG_NOSIGNAL);
}

static void reopen(struct connection *c) {
  close(c->fd);
  if (c->state != CONNECTING) open_count--;
  open_connection(c);
}

/* A connection that is over: an error if it owed an answer. */
static void over(struct connection *c) {
  if (c->state == CONNECTING && requests_each) {
    errors++;
  } else if (c->state == CONNECTING) {
    socklen_t size = sizeof errno;
    getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &errno, &size);
    die("connect");
  } else if (c->state == FREE) {
    struct connection *list = free_first;
    free_first = free_last = NULL;
    while (list) {
      struct connection *next = list->next;
      if (list != c) put_free(list);
      list = next;
    }
    reopened++;
  } else {
    outstanding--;
    errors++;
  }
  reopen(c);
}

static void answered(struct connection *c, int good, ns at) {
  outstanding--;
  answers++;
  last_answer = at;
  if (!good) errors++;
  note(at - c->start);
  if (c->state == CLOSING) reopen(c); else if (rate > 0) put_free(c); else ask(c, at);
}

/* The bytes of a head, its length included in `n` when complete: what it says of the
 * body. -1 when it cannot be understood. */
static int understand(struct connection *c, const char *p, size_t n) {
  if (n < 13 || strncmp(p, "HTTP/1.", 7)) return -1;
  c->good = p[9] == '2';
  for (const char *line = p; (line = memchr(line, '\n', (size_t)(p + n - line))); ) {
    if (++line + 15 > p + n) break;
    if ((*line == 'C' || *line == 'c') && !strncasecmp(line, "content-length:", 15)) {
      c->body = strtoull(line + 15, NULL, 10);
      return 0;
    }
  }
  return -1;
}

/* Take in what has come; 0 when the connection is broken. */
static int take(struct connection *c, const char *p, size_t n, ns at) {
  while (n) {
    if (c->state == READING) {
      size_t part = n < c->body ? n : (size_t)c->body;
      c->body -= part;
      p += part;
      n -= part;
    } else if (c->state == WAITING) {
      const char *from = p;
      size_t all = n;
      if (c->have) {
        if (c->have + n > HEAD_BYTES) all = HEAD_BYTES; else all = c->have + n;
        memcpy(c->head + c->have, p, all - c->have);
        from = c->head;
      }
      char *end = memmem(from, all, "\r\n\r\n", 4);
      if (!end) {
        if (all >= HEAD_BYTES) return 0;
        if (!c->head && !(c->head = malloc(HEAD_BYTES))) die("malloc");
        if (!c->have) memcpy(c->head, p, n);
        c->have = all;
        return 1;
      }
      size_t head = (size_t)(end + 4 - from);
      if (understand(c, from, head) < 0) return 0;
      p += head - c->have;
      n -= head - c->have;
      c->have = 0;
      c->state = READING;
    } else {
      return 0; /* an answer that was not asked for */
    }
    if (c->state == READING && !c->body) {
      if (c->asked == requests_each) c->state = CLOSING; else answered(c, c->good, at);
    }
  }
  return 1;
}

static void on_event(struct connection *c, uint32_t events) {
  if (c->state == CONNECTING) {
    if (events & (EPOLLERR | EPOLLHUP)) {
      over(c);
      return;
    }
    if (!(events & EPOLLOUT)) return;
    open_count++;
    if (counting && rate <= 0) ask(c, requests_each ? c->start : now()); else put_free(c);
    return;
  }
  if (!(events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
  for (;;) {
    ssize_t n = recv(c->fd, buffer, sizeof buffer, 0);
    if (n > 0) {
      bytes_received += (uint64_t)n;
      if (!take(c, buffer, (size_t)n, now())) {
        over(c);
        return;
      }
      if (n < RECEIVE_BYTES && !(events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))) return;
    } else if (n == 0 && c->state == CLOSING) {
      answered(c, c->good, now());
      return;
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      over(c);
      return;
    } else if (errno == EAGAIN) {
      return;
    }
  }
}

/* Wait for events until then, and see to them. */
static void turn(ns until) {
  static struct epoll_event events[EVENTS];
  ns at = now(), left = until > at ? until - at : 0;
  struct timespec patience = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
  int n = epoll_pwait2(epoll, events, EVENTS, &patience, NULL);
  if (n < 0 && errno != EINTR) die("epoll_pwait2");
  for (int i = 0; i < n; i++) on_event(events[i].data.ptr, events[i].events);
}

/* ---- The command line --------------------------------------------------- */

static _Noreturn void usage(void) {
  fprintf(stderr, "usage: ask http://ADDRESS:PORT/PATH -c CONNECTIONS -d SECONDS [--rate R | --requests N] [--skip N] [--json]\n"
                  "       {A..B} in the path is a number chosen at random\n");
  exit(2);
}

static void parse_url(const char *url) {
  char address[64];
  int port, at = 0;
  if (sscanf(url, "http://%63[0-9.]:%d%n", address, &port, &at) != 2 || url[at] != '/' ||
      port < 1 || port > 65535 || strlen(url) > REQUEST_BYTES / 2)
    usage();
  server.sin_family = AF_INET;
  server.sin_port = htons((uint16_t)port);
  if (inet_pton(AF_INET, address, &server.sin_addr) != 1) usage();
  const char *path = url + at, *brace = strchr(path, '{'), *rest = path + strlen(path);
  int length = (int)strlen(path);
  if (brace) {
    unsigned long long a, b;
    int used = 0;
    if (sscanf(brace, "{%llu..%llu}%n", &a, &b, &used) != 2 || !used || a > b) usage();
    first = a;
    choices = b - a + 1;
    rest = brace + used;
    length = (int)(brace - path);
  }
  before_bytes = sprintf(before, "GET %.*s", length, path);
  after_bytes = sprintf(after, "%s HTTP/1.1\r\nHost: %s:%d\r\n\r\n", rest, address, port);
}

int main(int argc, char **argv) {
  double seconds = 0;
  const char *url = NULL;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--json")) continue;
    if (argv[i][0] != '-' && !url) { url = argv[i]; continue; }
    if (i + 1 >= argc) usage();
    if (!strcmp(argv[i], "-c")) connection_count = atoi(argv[++i]);
    else if (!strcmp(argv[i], "-d")) seconds = atof(argv[++i]);
    else if (!strcmp(argv[i], "--rate")) rate = atof(argv[++i]);
    else if (!strcmp(argv[i], "--requests")) requests_each = atol(argv[++i]);
    else if (!strcmp(argv[i], "--skip")) skip = strtoul(argv[++i], NULL, 10);
    else usage();
  }
  if (!url || connection_count < 1 || seconds <= 0 || rate < 0 || requests_each < 0 || (rate > 0 && requests_each)) usage();
  parse_url(url);
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  prctl(PR_SET_TIMERSLACK, 1UL, 0, 0, 0);
  connections = calloc((size_t)connection_count, sizeof *connections);
  epoll = epoll_create1(EPOLL_CLOEXEC);
  if (!connections || epoll < 0) die("start");

  /* In portions, so that no listen queue overflows. */
  ns patience = now() + INT64_C(20000000000);
  for (int opened = 0; !requests_each && open_count < connection_count;) {
    while (opened < connection_count && opened - open_count < 256) open_connection(&connections[opened++]);
    turn(now() + 100000000);
    if (now() > patience) {
      errno = ETIMEDOUT;
      die("opening the connections");
    }
  }

  struct rusage r0, r1;
  getrusage(RUSAGE_SELF, &r0);
  ns start = now(), end = start + (ns)(seconds * 1e9);
  uint64_t due_before_end = (uint64_t)(rate * seconds), next = 0;
  counting = 1;
  bytes_received = 0;
  if (requests_each) {
    for (int i = 0; i < connection_count; i++) open_connection(&connections[i]);
    while (now() < end) turn(end);
  } else if (rate <= 0) {
    for (struct connection *c; (c = take_free());) ask(c, now());
    while (now() < end) turn(end);
  } else {
    while (next < due_before_end) {
      ns due = start + (ns)((double)next * 1e9 / rate), at = now();
      if (due > at) {
        turn(due);
      } else if (free_first) {
        if (at - due > behind_most) behind_most = at - due;
        next++;
        ask(take_free(), due);
        /* Late by much: look at the answers between the requests. */
        if (next % 64 == 0) turn(0);
      } else if (at > end + INT64_C(2000000000)) {
        break;
      } else {
        turn(end);
      }
    }
    while (outstanding && now() < end + INT64_C(2000000000)) turn(now() + 10000000);
    ns at = now();
    for (int i = 0; i < connection_count; i++)
      if (connections[i].state == WAITING || connections[i].state == READING) {
        note(at - connections[i].start);
        errors++;
      }
    for (; next < due_before_end; next++) {
      note(at - start - (ns)((double)next * 1e9 / rate));
      errors++;
    }
  }
  record_kept();
  double took = (double)((last_answer > end ? last_answer : end) - start) / 1e9;
  getrusage(RUSAGE_SELF, &r1);
  double cpu = (double)(r1.ru_utime.tv_sec - r0.ru_utime.tv_sec + r1.ru_stime.tv_sec - r0.ru_stime.tv_sec) +
               (double)(r1.ru_utime.tv_usec - r0.ru_utime.tv_usec + r1.ru_stime.tv_usec - r0.ru_stime.tv_usec) / 1e6;
  double mean = recorded ? latency_sum / (double)recorded : 0;
  printf("{\"requests\":%llu,\"seconds\":%.6f,\"requests_per_second\":%.3f,\"mean_us\":%.3f,"
         "\"p50_us\":%.3f,\"p90_us\":%.3f,\"p99_us\":%.3f,\"p999_us\":%.3f,\"max_us\":%.3f,"
         "\"errors\":%llu,\"reopened\":%llu,\"bytes\":%llu,\"behind_us\":%.3f,\"client_cpu_seconds\":%.6f}\n",
         (unsigned long long)answers, took, (double)answers / took, mean / 1e3, percentile(0.5) / 1e3,
         percentile(0.9) / 1e3, percentile(0.99) / 1e3, percentile(0.999) / 1e3, (double)latency_most / 1e3,
         (unsigned long long)errors, (unsigned long long)reopened, (unsigned long long)bytes_received,
         (double)behind_most / 1e3, cpu);
  return 0;
}
