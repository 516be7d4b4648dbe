/* The part of io_uring that the backend needs, over the raw system calls.
 *
 * A ring is used by one thread at a time, but for weft_uring_wake, which any
 * thread may call at any time, even after weft_uring_close and until
 * weft_uring_free. Errors are negated errno values throughout. Where the kernel
 * headers are missing or older than Linux 5.19, weft_uring_new answers -ENOSYS
 * and nothing else may be called.
 */
#ifndef WEFT_URING_H
#define WEFT_URING_H

#include <stddef.h>
#include <stdint.h>

struct weft_uring;

/* A completion: the number given with the submission, the result, and of a watch whether it
 * goes on, and whether the stream has ended, failed, or has urgent data in it. */
struct weft_uring_event {
  uint64_t user_data;
  int32_t result;
  uint32_t flags;
};
#define WEFT_URING_MORE 1
#define WEFT_URING_ENDS 2

/* How many events one call of weft_uring_turn or weft_uring_wait collects at most. */
#define WEFT_URING_EVENTS 16

/* The low three bits of user_data say what a submission was. Completions of
 * operations and watches are shown to the caller; of cancellations of one operation those that
 * have not found it, and of those of a descriptor how many operations each has found. */
#define WEFT_URING_OPERATION 0
#define WEFT_URING_CANCEL 1
#define WEFT_URING_WAKE 2
#define WEFT_URING_WATCHED 3
#define WEFT_URING_CANCEL_OPERATION 4
#define WEFT_URING_CANCEL_DESCRIPTOR 5
#define WEFT_URING_KINDS 8

/* Bits of the set-up. */
#define WEFT_URING_PLAIN 1    /* without COOP_TASKRUN */
#define WEFT_URING_DEFERRED 2 /* with DEFER_TASKRUN, where the kernel has what that takes */

/* A failure says in which step. */
struct weft_uring *weft_uring_new(uint32_t sq_entries, uint32_t cq_entries,
                                  uint32_t modes, const char **step, int *error);
/* Is it with DEFER_TASKRUN? */
int weft_uring_deferred(const struct weft_uring *r);
void weft_uring_close(struct weft_uring *r);
void weft_uring_free(struct weft_uring *r);

/* Collect what has completed, after handing over what was queued; no system
 * call when there is neither. Answers the number of events, or an error. When it
 * is WEFT_URING_EVENTS there may be more. Never blocks. */
int weft_uring_turn(struct weft_uring *r);
/* As weft_uring_turn, but when nothing has completed, block for at most this number of
 * nanoseconds (negative: for ever). A signal does not end it. */
int weft_uring_wait(struct weft_uring *r, int64_t nanoseconds);
struct weft_uring_event *weft_uring_events(struct weft_uring *r);

/* The calling thread uses the ring from now on, and not the one before. */
void weft_uring_adopt(struct weft_uring *r);

/* Make the present or the next weft_uring_wait return. */
void weft_uring_wake(struct weft_uring *r);

/* No wake-ups any more: the ring is about to be closed. */
void weft_uring_quiesce(struct weft_uring *r);

/* Counters since the ring was made. */
uint64_t weft_uring_count_enter(const struct weft_uring *r);
uint64_t weft_uring_count_wake_writes(const struct weft_uring *r);
/* For tests: a held ring does not submit when its queue is full. */
void weft_uring_hold(struct weft_uring *r, int held);

/* The requests to the kernel, in the order of Weft.Internal.Backend.Uring.Ring. An argument
 * that is not named is 0. */
enum weft_uring_request {
  WEFT_URING_RECEIVE,         /* address, size; it waits before it tries, as do the next three */
  WEFT_URING_SEND,            /* address, size; MSG_NOSIGNAL */
  WEFT_URING_RECEIVE_MESSAGE, /* address of the header, 1 */
  WEFT_URING_SEND_MESSAGE,    /* address of the header, 1; MSG_NOSIGNAL */
  WEFT_URING_ACCEPT,          /* the peer's address; offset: the address of its size */
  WEFT_URING_CONNECT,         /* address; offset: its size */
  WEFT_URING_AWAIT_READABLE,
  WEFT_URING_AWAIT_WRITABLE,
  WEFT_URING_AWAIT_EVENTS,    /* flags: events of poll */
  WEFT_URING_WATCH,           /* completes each time there is something to read, with events of poll */
  WEFT_URING_READ_AT,         /* address, size, offset */
  WEFT_URING_WRITE_AT,        /* address, size, offset */
  WEFT_URING_WARM,            /* size, offset: read into memory that is never read, to cache it */
  WEFT_URING_SYNC,            /* flags: 1 for the data only */
  WEFT_URING_STAT_AT,         /* address of the path; size: mask; offset: the address of the result; flags */
};

/* Queue a submission: 1, or 0 when there is no room even after submitting what
 * was queued. */
int weft_uring_submit(struct weft_uring *, int request, int fd, const void *address, uint32_t size,
                      int64_t offset, uint32_t flags, uint64_t);
int weft_uring_open_at(struct weft_uring *, int fd, const void *, uint64_t flags,
                       uint64_t mode, uint64_t resolve, uint64_t);
/* Cancel the submission with this user_data; all on a descriptor; all there are. */
int weft_uring_cancel(struct weft_uring *, uint64_t target);
int weft_uring_cancel_descriptor(struct weft_uring *, int fd);
int weft_uring_cancel_all(struct weft_uring *);

/* Is no request for wake-ups in flight? */
int weft_uring_quiet(const struct weft_uring *r);

/* What WEFT_URING_WARM reads at most: what weft_resident looks at. */
#define WEFT_SENDFILE_CHUNK (256 * 1024)

#endif
