/* A computation that stays out of the kernel for as long as it is told to: what
 * an OS thread does that is stuck. */
void weft_test_spin(volatile int *going) {
  while (*going) {
  }
}
