/*
 * Sending at once, from any thread: each function holds the descriptor, by Note [Use of
 * the number] in Weft.Internal.Os.Descriptor, which also says what its two words are.
 */
#define _GNU_SOURCE
#include "weft_sys.h"

#include "weft_raw.h"

#include <errno.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

enum { CLOSED_BIT = 62 };

static int begin(intptr_t *words) {
  return __atomic_exchange_n(&words[1], 1, __ATOMIC_SEQ_CST) == 0;
}

static void end(intptr_t *words) { __atomic_store_n(&words[1], 0, __ATOMIC_RELEASE); }

static int is_closed(intptr_t *words) {
  return __atomic_load_n(&words[0], __ATOMIC_SEQ_CST) >> CLOSED_BIT & 1;
}

/* send with these flags: how many bytes the socket took, or -EBUSY where another thread
   is here, -ESHUTDOWN where the descriptor was closed. */
intptr_t weft_send_now(intptr_t *words, int fd, const void *buffer, intptr_t size,
                       int flags) {
  if (!begin(words)) return -EBUSY;
  intptr_t answer = -ESHUTDOWN;
  if (!is_closed(words)) {
    ssize_t sent = weft_raw_send(fd, buffer, (size_t)size, flags);
    answer = sent < 0 ? -errno : sent;
  }
  end(words);
  return answer;
}

/* recv without waiting; fails as weft_send_now. */
intptr_t weft_receive_now(intptr_t *words, int fd, void *buffer, intptr_t size) {
  if (!begin(words)) return -EBUSY;
  intptr_t answer = -ESHUTDOWN;
  if (!is_closed(words)) {
    ssize_t got = weft_raw_recv(fd, buffer, (size_t)size, MSG_DONTWAIT);
    answer = got < 0 ? -errno : got;
  }
  end(words);
  return answer;
}

/* Send bytes, and after them a part of a file that is in the page cache: how many
   of both together the socket took at once. 0 also when the part is not in memory;
   an error of the socket or the file is for the next call to find. */
intptr_t weft_send_file_now(intptr_t *words, int out, const void *before,
                            intptr_t length, int in, int64_t offset, intptr_t size) {
  if (weft_resident(in, offset, size) < size) return 0;
  if (!begin(words)) return -EBUSY;
  intptr_t sent = -ESHUTDOWN;
  if (!is_closed(words)) {
    sent = 0;
    if (length > 0) {
      sent = weft_raw_send(out, before, (size_t)length, MSG_MORE | MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) sent = 0;
    }
    if (sent == length) {
      off_t at = offset;
      ssize_t part = sendfile(out, in, &at, (size_t)size);
      if (part > 0) sent += part;
    }
  }
  end(words);
  return sent;
}

/* For a caller that uses the number in calls of its own, which may take their time: 0, and the
   number is not closed before weft_let_go; or -EBUSY, -ESHUTDOWN as above. */
intptr_t weft_hold(intptr_t *words) {
  if (!begin(words)) return -EBUSY;
  if (!is_closed(words)) return 0;
  end(words);
  return -ESHUTDOWN;
}

void weft_let_go(intptr_t *words) { end(words); }
