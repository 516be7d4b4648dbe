/* Echo (port 7), discard (9) and chargen (19) on 127.0.0.1, by an epoll loop over the system's
 * sockets. Runs until it is killed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static char buffer[65536], zeros[65536];

int main(void) {
  static const int ports[] = {7, 9, 19};
  int epoll = epoll_create1(0), one = 1;
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  for (int i = 0; i < 3; i++) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)ports[i]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) < 0 || listen(fd, 4096) < 0) return perror("listen"), 1;
    struct epoll_event e = {.events = EPOLLIN, .data.u64 = ((uint64_t)i << 33) | ((uint64_t)1 << 32) | (unsigned)fd};
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &e);
  }
  for (;;) {
    struct epoll_event events[256];
    int n = epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < n; i++) {
      uint64_t u = events[i].data.u64;
      int fd = (int)(uint32_t)u, what = (int)(u >> 33);
      if (u >> 32 & 1) {
        int c;
        while ((c = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
          setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
          struct epoll_event e = {.events = what == 2 ? EPOLLOUT : EPOLLIN, .data.u64 = ((uint64_t)what << 33) | (unsigned)c};
          epoll_ctl(epoll, EPOLL_CTL_ADD, c, &e);
        }
      } else if (what == 2) {
        if (events[i].events & (EPOLLERR | EPOLLHUP)) close(fd);
        else while (send(fd, zeros, sizeof zeros, MSG_NOSIGNAL) > 0) {}
      } else {
        ssize_t got = recv(fd, buffer, sizeof buffer, 0);
        if (got <= 0) close(fd);
        else if (what == 0 && send(fd, buffer, (size_t)got, MSG_NOSIGNAL) != got) close(fd);
      }
    }
  }
}
