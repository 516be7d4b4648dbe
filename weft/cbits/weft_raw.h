/*
 * The two calls that are made for each request. The C library's recv and send are
 * cancellation points of pthreads: in a process with several threads that is three more
 * calls, 50 instructions. No thread is cancelled here.
 */
#ifndef WEFT_RAW_H
#define WEFT_RAW_H

#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline ssize_t weft_raw_recv(int fd, void *buffer, size_t size, int flags) {
#ifdef SYS_recvfrom
  return syscall(SYS_recvfrom, fd, buffer, size, flags, NULL, NULL);
#else
  return recv(fd, buffer, size, flags);
#endif
}

static inline ssize_t weft_raw_send(int fd, const void *buffer, size_t size, int flags) {
#ifdef SYS_sendto
  return syscall(SYS_sendto, fd, buffer, size, flags, NULL, 0);
#else
  return send(fd, buffer, size, flags);
#endif
}

#endif
