/* An OS thread that ends as one does that is stopped in the middle. */
#include <pthread.h>

static void *leave(void *result) { pthread_exit(result); }

/* Answers whether it has ended. */
int weft_test_thread_exit(void) {
  pthread_t t;
  return pthread_create(&t, 0, leave, 0) == 0 && pthread_join(t, 0) == 0;
}
