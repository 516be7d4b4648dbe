/* A computation that stays out of the kernel for as long as it is told to: what
 * an OS thread does that is stuck. Says 2 when it has begun, and ends at 0. */
void weft_test_spin(volatile int *going) {
  *going = 2;
  while (*going) {
  }
}
