/*
 * Operations on files that answer from memory or not at all: see
 * Weft.Internal.Kernel.Files. -EAGAIN stands for all that takes another call, one
 * that may wait, to find out.
 */
#define _GNU_SOURCE
#include "weft_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifdef SYS_openat2
#include <linux/openat2.h>
#endif

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20 /* Linux 5.12 */
#endif

/* 1 if opening a file and reading its metadata are operations on memory there, once
   its name has been looked up. Asking can take as long as a server on the network
   likes. */
intptr_t weft_is_local(int fd) {
  struct statfs s;
  if (fstatfs(fd, &s) == -1) return 0;
  switch ((unsigned long)s.f_type & 0xffffffff) {
    case EXT4_SUPER_MAGIC: /* ext2 and ext3 too */
    case 0x58465342:       /* XFS */
    case BTRFS_SUPER_MAGIC:
    case F2FS_SUPER_MAGIC:
    case SQUASHFS_MAGIC:
    case TMPFS_MAGIC:
    case RAMFS_MAGIC:
      return 1;
    default:
      return 0;
  }
}

/* Open a path whose names are all in memory and that does not leave the file
   system. Only "there is nothing" is an error that is believed. */
intptr_t weft_open_now(int dir, const char *path, intptr_t flags,
                       intptr_t resolve) {
#ifdef SYS_openat2
  struct open_how how;
  memset(&how, 0, sizeof how);
  how.flags = (uint64_t)flags;
  how.resolve = (uint64_t)resolve | RESOLVE_CACHED | RESOLVE_NO_XDEV;
  long fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
  if (fd >= 0) return fd;
  return errno == ENOENT ? -ENOENT : -EAGAIN;
#else
  (void)dir, (void)path, (void)flags, (void)resolve;
  return -EAGAIN;
#endif
}

/* statx of an open file, or (a path that is not empty) of one like that of
   weft_open_now. */
intptr_t weft_stat_now(int dir, const char *path, intptr_t mask, void *buffer) {
  int fd = dir;
  if (*path != '\0') {
    intptr_t opened = weft_open_now(dir, path, O_PATH | O_CLOEXEC, 0);
    if (opened < 0) return opened;
    fd = (int)opened;
  }
  int r = statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, (unsigned)mask, buffer);
  if (fd != dir) weft_close(fd);
  return r == -1 ? -EAGAIN : 0;
}

/* pread of bytes that are in the page cache. As with pread, fewer than asked for are
   the last of the file. For a file that was not opened with O_DIRECT. */
intptr_t weft_read_now(int fd, void *buffer, intptr_t size, int64_t offset) {
#ifdef RWF_NOWAIT
  intptr_t done = 0;
  while (done < size) {
    struct iovec rest = {(char *)buffer + done, (size_t)(size - done)};
    intptr_t n = preadv2(fd, &rest, 1, offset + done, RWF_NOWAIT);
    if (n == -1) return -EAGAIN;
    if (n == 0) break;
    done += n;
  }
  return done;
#else
  (void)fd, (void)buffer, (void)size, (void)offset;
  return -EAGAIN;
#endif
}
