/*
 * The system calls of Weft.Internal.Os.Sys.
 *
 * Every function answers what the call answers, or the negated errno: errno
 * itself is a property of an OS thread, and a Haskell thread may move to
 * another one between a foreign call and the look at errno. EINTR is retried
 * inside; a call with a time limit goes on with what is left of it.
 */
#ifndef WEFT_SYS_H
#define WEFT_SYS_H

#include <poll.h>
#include <stdint.h>

/* Readiness in the words of Weft.Internal.Backend.Readiness.Poller. */
enum {
  WEFT_READABLE = 1,
  WEFT_WRITABLE = 2,
  WEFT_READ_HANGUP = 4,  /* a short read proves nothing from now on */
  WEFT_WRITE_HANGUP = 8, /* a short write proves nothing from now on */
  WEFT_INVALID = 16,     /* the number is not an open descriptor */
  WEFT_PEER_CLOSED = 32, /* the other side sends nothing more */
  WEFT_FAILED = 64       /* an error is pending */
};

/* When a poller reports a descriptor. */
enum { WEFT_LEVEL = 0, WEFT_EDGE = 1, WEFT_ONCE = 2 };

/* One event, the same for every poller. */
struct weft_event {
  uint64_t key; /* what the descriptor was registered under */
  uint64_t bits;
};

/* Streams: these never block when the descriptor is in non-blocking mode. */
intptr_t weft_recv(int fd, void *buffer, intptr_t size);
intptr_t weft_send(int fd, const void *buffer, intptr_t size);
intptr_t weft_recvmsg(int fd, void *header);
intptr_t weft_sendmsg(int fd, const void *header);
intptr_t weft_accept(int fd, void *address, void *address_size);
intptr_t weft_connect(int fd, const void *address, intptr_t size);
intptr_t weft_connect_result(int fd);
intptr_t weft_read(int fd, void *buffer, intptr_t size);
intptr_t weft_write(int fd, const void *buffer, intptr_t size);
intptr_t weft_sendfile(int out, int in, int64_t offset, intptr_t size);
intptr_t weft_ready_now(int fd, intptr_t bits);
intptr_t weft_await_ready(int fd, intptr_t bits);
intptr_t weft_plain_tcp(int fd);

/* Files: these wait for disks. */
intptr_t weft_pread(int fd, void *buffer, intptr_t size, int64_t offset);
intptr_t weft_pwrite(int fd, const void *buffer, intptr_t size, int64_t offset);
intptr_t weft_fsync(int fd, intptr_t data_only);
intptr_t weft_openat2(int dir, const char *path, intptr_t flags, intptr_t mode,
                      intptr_t resolve);
intptr_t weft_statx(int dir, const char *path, intptr_t flags, intptr_t mask,
                    void *buffer);
intptr_t weft_resident(int fd, int64_t offset, intptr_t size);
intptr_t weft_read_in(int fd, int64_t offset, intptr_t size);
intptr_t weft_is_local(int fd);

/* Files: these answer -EAGAIN instead of waiting. */
intptr_t weft_open_now(int dir, const char *path, intptr_t flags,
                       intptr_t resolve);
intptr_t weft_stat_now(int dir, const char *path, intptr_t mask, void *buffer);
intptr_t weft_read_now(int fd, void *buffer, intptr_t size, int64_t offset);

/* From any thread, by the words of a descriptor. */
intptr_t weft_send_now(intptr_t *words, int fd, const void *buffer, intptr_t size,
                       int flags);
intptr_t weft_receive_now(intptr_t *words, int fd, void *buffer, intptr_t size);
intptr_t weft_hold(intptr_t *words);
void weft_let_go(intptr_t *words);
intptr_t weft_send_file_now(intptr_t *words, int out, const void *before,
                            intptr_t length, int in, int64_t offset, intptr_t size);

/* Descriptors. */
intptr_t weft_close(int fd);
intptr_t weft_eventfd(void);

/* Waiting. Time limits are in nanoseconds; negative means for ever. */
intptr_t weft_epoll_create(void);
intptr_t weft_epoll_watch(int epfd, int fd, uint64_t key, intptr_t trigger,
                          intptr_t bits);
intptr_t weft_epoll_remove(int epfd, int fd);
intptr_t weft_epoll_wait(int epfd, struct weft_event *events, intptr_t capacity,
                         int64_t timeout);
intptr_t weft_poll_events(intptr_t bits);
uint64_t weft_bits_of_poll(intptr_t events);
/* Descriptors from this number on are too large for select. */
intptr_t weft_select_limit(void);
intptr_t weft_select_wait(struct pollfd *fds, const uint64_t *keys, intptr_t count,
                          struct weft_event *events, intptr_t capacity,
                          int64_t timeout);
intptr_t weft_poll_wait(struct pollfd *fds, const uint64_t *keys, intptr_t count,
                        struct weft_event *events, intptr_t capacity,
                        int64_t timeout);

/* weft_kqueue.c: as for epoll, level-triggered. -ENOSYS where it is not compiled in. */
intptr_t weft_kqueue_is_built(void);
intptr_t weft_kqueue_create(void);
intptr_t weft_kqueue_watch(int kq, int fd, uint64_t key, intptr_t bits);
void weft_kqueue_remove(int kq, int fd);
intptr_t weft_kqueue_wait(int kq, struct weft_event *events, intptr_t capacity,
                          int64_t timeout);

/* Nanoseconds of the monotonic clock. */
int64_t weft_monotonic(void);

/* When the time limit of a wait ends, and what is left of it when a signal has interrupted the wait. */
int64_t weft_deadline_of(int64_t timeout);
int64_t weft_left_until(int64_t deadline, int64_t timeout);

/* Keep the processor for a time, at least; for a few microseconds. */
void weft_spin(int64_t nanoseconds);

#endif
