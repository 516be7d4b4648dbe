/* Toy servers after Kerneis & Chroboczek 2009, section 3: one thread or process accepts, and
 * starts another for each connection, which answers one request and closes. One source for
 * four ways to do so; each of TOY_FORK, TOY_NPTL, TOY_PTH and TOY_ST makes a program.
 *
 *   toy-fork|toy-nptl|toy-pth|toy-st --port P [--backlog N]
 *
 * The page of 305 bytes is in memory. A request is what comes before an empty line. There is no
 * limit of time. Threads have stacks of 32 KB.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined TOY_NPTL
#include <pthread.h>
#elif defined TOY_PTH
#include <pth.h>
#elif defined TOY_ST
#include <st.h>
#elif !defined TOY_FORK
#error "which toy?"
#endif

enum { BODY_BYTES = 305, REQUEST_BYTES = 4096, STACK_BYTES = 32768 };

static char answer[1024];
static size_t answer_bytes;

static _Noreturn void die(const char *what) {
  fprintf(stderr, "toy: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void prepare_answer(void) {
  char body[BODY_BYTES + 1];
  const char *tail = "</p></body></html>\n";
  int n = sprintf(body, "<!DOCTYPE html><html><head><title>A page</title></head><body><p>");
  memset(body + n, 'w', sizeof body - (size_t)n);
  memcpy(body + BODY_BYTES - strlen(tail), tail, strlen(tail) + 1);
  answer_bytes = (size_t)sprintf(answer,
      "HTTP/1.1 200 OK\r\nServer: toy\r\nContent-Type: text/html\r\nContent-Length: %d\r\n"
      "Connection: close\r\n\r\n%s", BODY_BYTES, body);
}

/* ---- Connections of each library: type, read, write, close ------------------------------- */

#ifdef TOY_ST
typedef st_netfd_t connection;
static ssize_t get(connection c, char *to, size_t n) { return st_read(c, to, n, ST_UTIME_NO_TIMEOUT); }
static ssize_t put(connection c, const char *p, size_t n) { return st_write(c, p, n, ST_UTIME_NO_TIMEOUT); }
static void end(connection c) { st_netfd_close(c); }
#else
typedef int connection;
#ifdef TOY_PTH
static ssize_t get(connection c, char *to, size_t n) { return pth_read(c, to, n); }
static ssize_t put(connection c, const char *p, size_t n) { return pth_write(c, p, n); }
#else
static ssize_t get(connection c, char *to, size_t n) { return read(c, to, n); }
static ssize_t put(connection c, const char *p, size_t n) { return write(c, p, n); }
#endif
static void end(connection c) { close(c); }
#endif

/* The whole life of a connection. */
static void converse(connection c) {
  char request[REQUEST_BYTES];
  size_t have = 0;
  while (have < sizeof request) {
    ssize_t n = get(c, request + have, sizeof request - have);
    if (n <= 0) break;
    have += (size_t)n;
    if (memmem(request, have, "\r\n\r\n", 4)) {
      for (size_t given = 0; given < answer_bytes; given += (size_t)n)
        if ((n = put(c, answer + given, answer_bytes - given)) <= 0) break;
      break;
    }
  }
  end(c);
}

/* ---- Accepting, and a thread or process for each ----------------------------------------- */

#if !defined TOY_FORK
static void *body(void *with) {
#ifdef TOY_ST
  converse(with);
#else
  converse((int)(intptr_t)with);
#endif
  return NULL;
}
#endif

#if defined TOY_FORK
/* Waited for, so that its processor time is known to be ours. */
static void reap(int signal_number) {
  (void)signal_number;
  int before = errno;
  while (waitpid(-1, NULL, WNOHANG) > 0) {}
  errno = before;
}
#endif

static _Noreturn void serve(int listener) {
#if defined TOY_FORK
  struct sigaction act = {.sa_handler = reap, .sa_flags = SA_RESTART | SA_NOCLDSTOP};
  sigaction(SIGCHLD, &act, NULL);
  for (;;) {
    int c = accept(listener, NULL, NULL);
    if (c < 0) continue;
    if (fork() == 0) {
      close(listener);
      converse(c);
      _exit(0);
    }
    close(c);
  }
#elif defined TOY_NPTL
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, STACK_BYTES);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  for (;;) {
    pthread_t thread;
    int c = accept(listener, NULL, NULL);
    if (c >= 0 && pthread_create(&thread, &small, body, (void *)(intptr_t)c)) close(c);
  }
#elif defined TOY_PTH
  pth_init();
  pth_attr_t small = pth_attr_new();
  pth_attr_set(small, PTH_ATTR_STACK_SIZE, (unsigned int)STACK_BYTES);
  pth_attr_set(small, PTH_ATTR_JOINABLE, FALSE);
  for (;;) {
    int c = pth_accept(listener, NULL, NULL);
    if (c >= 0 && !pth_spawn(small, body, (void *)(intptr_t)c)) close(c);
  }
#else
  st_set_eventsys(ST_EVENTSYS_ALT); /* epoll */
  if (st_init() < 0) die("st_init");
  st_netfd_t from = st_netfd_open_socket(listener);
  if (!from) die("st_netfd_open_socket");
  for (;;) {
    st_netfd_t c = st_accept(from, NULL, NULL, ST_UTIME_NO_TIMEOUT);
    if (c && !st_thread_create(body, c, 0, STACK_BYTES)) st_netfd_close(c);
  }
#endif
}

int main(int argc, char **argv) {
  int port = 0, backlog = 1024, on = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!strcmp(argv[i], "--port")) port = atoi(argv[i + 1]);
    else if (!strcmp(argv[i], "--backlog")) backlog = atoi(argv[i + 1]);
  }
  if (port < 1 || port > 65535 || backlog < 1) {
    fprintf(stderr, "usage: toy-... --port P [--backlog N]\n");
    return 2;
  }
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  signal(SIGPIPE, SIG_IGN);
  prepare_answer();
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (listener < 0) die("socket");
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0) die("bind");
  if (listen(listener, backlog) < 0) die("listen");
  serve(listener);
}
