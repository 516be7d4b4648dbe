/* Signals for one thread, one each 200 microseconds, until they are stopped. Their handler only
 * counts. One thread at a time has them. */
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <time.h>

static pthread_t target, sender;
static int going, handled;

static void count(int number) {
  (void)number;
  __atomic_add_fetch(&handled, 1, __ATOMIC_SEQ_CST);
}

static void *send_signals(void *unused) {
  static const struct timespec pause = {0, 200000};
  while (__atomic_load_n(&going, __ATOMIC_SEQ_CST)) {
    pthread_kill(target, SIGUSR2);
    nanosleep(&pause, NULL);
  }
  return unused;
}

/* How many the thread has had. */
int weft_test_signals(void) { return __atomic_load_n(&handled, __ATOMIC_SEQ_CST); }

/* Begin with the calling thread: 0, or an error. */
int weft_test_signals_begin(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = count;
  if (sigaction(SIGUSR2, &action, NULL) != 0) return -1;
  target = pthread_self();
  going = 1;
  return pthread_create(&sender, NULL, send_signals, NULL);
}

/* On the same thread. The handler stays: a signal may be on its way. */
void weft_test_signals_end(void) {
  __atomic_store_n(&going, 0, __ATOMIC_SEQ_CST);
  pthread_join(sender, NULL);
}
