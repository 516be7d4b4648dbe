/* Standard error, for messages to the operator. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <unistd.h>

static pthread_mutex_t pen = PTHREAD_MUTEX_INITIALIZER;

/* Write a text, whole: no other text comes in between. One write(2), and more where the
   system takes a part only. What cannot be written is dropped. */
void weft_report(const char *text, size_t length) {
  pthread_mutex_lock(&pen);
  while (length > 0) {
    ssize_t n = write(STDERR_FILENO, text, length);
    if (n > 0) {
      text += n;
      length -= (size_t)n;
    } else if (n < 0 && errno == EAGAIN) {
      /* A process that shares the terminal or the pipe has made it non-blocking. */
      struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
      if (poll(&p, 1, -1) < 0 && errno != EINTR) break;
    } else if (n == 0 || errno != EINTR) {
      break;
    }
  }
  pthread_mutex_unlock(&pen);
}
