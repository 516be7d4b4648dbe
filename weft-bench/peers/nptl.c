/* The workloads of `weft-bench pipes`, `stm`, `disk-random`, `spread` and `memory` with OS threads
   (NPTL) whose stacks are 32 KB, as in the works that weft-bench/README.md names.

     nptl pipes  processors=1 pairs=128 bytes=32768 capacity=4096 idle=0 total=268435456 [fifos=DIR]
     nptl stm    processors=2 total=1000000
     nptl disk-random processors=1 threads=64 reads=10000 file-bytes=1073741824 file=PATH
     nptl spread processors=2 threads=1024 turns=20 steps=10000 counter=1
     nptl memory threads=1024 buffer=4096

   Prints one JSON object on one line. Processors are chosen by the caller, with taskset. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int argument_count;
static char **arguments;

static void fail(const char *what) {
  fprintf(stderr, "nptl: %s: %s\n", what, strerror(errno));
  exit(1);
}

static const char *text(const char *key) {
  size_t n = strlen(key);
  for (int i = 2; i < argument_count; i++)
    if (!strncmp(arguments[i], key, n) && arguments[i][n] == '=') return arguments[i] + n + 1;
  fprintf(stderr, "nptl: %s is missing\n", key);
  exit(2);
}

static long number(const char *key) {
  const char *from = text(key);
  char *end;
  long n = strtol(from, &end, 10);
  if (end == from || *end || n < 0) {
    fprintf(stderr, "nptl: %s is no number\n", key);
    exit(2);
  }
  return n;
}

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static pthread_t start(void *(*body)(void *), void *with) {
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 32768);
  if ((errno = pthread_create(&thread, &small, body, with))) fail("pthread_create");
  pthread_attr_destroy(&small);
  return thread;
}

/* All threads wait here until everything is there; the clock runs from then on. */
static pthread_barrier_t gate;

static void *checked(void *memory) {
  if (!memory) fail("malloc");
  return memory;
}

/* Start the threads, open the gate, wait for all, print. */
static void measure(long count, void *(*body)(void *), char *with, size_t size, long operations) {
  pthread_t *threads = checked(calloc((size_t)count, sizeof *threads));
  pthread_barrier_init(&gate, NULL, (unsigned)count + 1);
  for (long i = 0; i < count; i++) threads[i] = start(body, with + (size_t)i * size);
  double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  pthread_barrier_wait(&gate);
  for (long i = 0; i < count; i++) pthread_join(threads[i], NULL);
  wall = seconds(CLOCK_MONOTONIC) - wall;
  cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  printf("{\"operations\":%ld,\"seconds\":%.9f,\"cpu_seconds\":%.9f}\n", operations, wall, cpu);
}

/* pipes */

struct end {
  int in, out, first;
};

static long rounds, bytes;

static void take(int fd, char *buffer) {
  for (long got = 0; got < bytes;) {
    ssize_t n = read(fd, buffer + got, (size_t)(bytes - got));
    if (n <= 0) fail("read");
    got += n;
  }
}

static void put(int fd, const char *buffer) {
  for (long given = 0; given < bytes;) {
    ssize_t n = write(fd, buffer + given, (size_t)(bytes - given));
    if (n <= 0) fail("write");
    given += n;
  }
}

static void *converse(void *with) {
  struct end *end = with;
  char *buffer = checked(calloc(1, (size_t)bytes));
  pthread_barrier_wait(&gate);
  for (long i = 0; i < rounds; i++) {
    if (end->first) put(end->out, buffer);
    take(end->in, buffer);
    if (!end->first) put(end->out, buffer);
  }
  free(buffer);
  return NULL;
}

static void *idle(void *with) {
  char c;
  if (read((int)(intptr_t)with, &c, 1) < 0) fail("read of an idle FIFO");
  return NULL;
}

static void open_pipe(int *ends, int capacity) {
  if (pipe(ends)) fail("pipe");
  if (fcntl(ends[0], F_SETPIPE_SZ, capacity) < 0) fail("F_SETPIPE_SZ");
}

static void pipes(void) {
  long pairs = number("pairs"), idlers = number("idle");
  bytes = number("bytes");
  rounds = number("total") / (2 * bytes * pairs);
  if (rounds < 1) rounds = 1;
  for (long i = 0; i < idlers; i++) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%ld", text("fifos"), i);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) fail(path);
    start(idle, (void *)(intptr_t)fd);
  }
  struct end *ends = checked(calloc(2 * (size_t)pairs, sizeof *ends));
  for (long i = 0; i < pairs; i++) {
    int to[2], fro[2];
    open_pipe(to, (int)number("capacity"));
    open_pipe(fro, (int)number("capacity"));
    ends[2 * i] = (struct end){fro[0], to[1], 1};
    ends[2 * i + 1] = (struct end){to[0], fro[1], 0};
  }
  measure(2 * pairs, converse, (char *)ends, sizeof *ends, rounds * 2 * bytes * pairs);
  /* The idle ones would wait for ever. */
  fflush(stdout);
  _exit(0);
}

/* stm: a mutex around an integer */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile long shared;
static long share;

static void *increment(void *with) {
  (void)with;
  pthread_barrier_wait(&gate);
  for (long i = 0; i < share; i++) {
    pthread_mutex_lock(&mutex);
    shared = shared + 1;
    pthread_mutex_unlock(&mutex);
  }
  return NULL;
}

static void stm(void) {
  long threads = number("processors");
  share = number("total") / threads;
  measure(threads, increment, NULL, 0, share * threads);
  if (shared != share * threads) fail("lost increments");
}

/* disk */

struct reader {
  uint64_t state;
};

static int file;
static uint64_t blocks;
static long reads;

/* Knuth's linear congruential generator, as in the other contenders. */
static uint64_t next(uint64_t x) { return x * 6364136223846793005u + 1442695040888963407u; }

static void *read_blocks(void *with) {
  struct reader *reader = with;
  void *buffer;
  if (posix_memalign(&buffer, 4096, 4096)) fail("memory");
  pthread_barrier_wait(&gate);
  for (long i = 0; i < reads; i++) {
    reader->state = next(reader->state);
    if (pread(file, buffer, 4096, (off_t)((reader->state >> 33) % blocks * 4096)) != 4096) fail("read");
  }
  free(buffer);
  return NULL;
}

static void disk(void) {
  long threads = number("threads");
  reads = number("reads") / threads;
  if (reads < 1) reads = 1;
  blocks = (uint64_t)number("file-bytes") / 4096;
  if ((file = open(text("file"), O_RDONLY | O_DIRECT | O_CLOEXEC)) < 0) fail(text("file"));
  struct reader *readers = checked(calloc((size_t)threads, sizeof *readers));
  for (long i = 0; i < threads; i++) readers[i].state = next((uint64_t)i + 1);
  measure(threads, read_blocks, (char *)readers, sizeof *readers, reads * threads);
}

/* spread */

static long turns, work, counting;

static void *compute(void *with) {
  uint64_t a = (uint64_t)(intptr_t)with + 1;
  pthread_barrier_wait(&gate);
  for (long turn = 0; turn < turns; turn++) {
    for (long i = 0; i < work; i++) a = next(a);
    if (counting) {
      pthread_mutex_lock(&mutex);
      shared = shared + 1;
      pthread_mutex_unlock(&mutex);
    }
    sched_yield();
  }
  return (void *)(intptr_t)a;
}

static void spread(void) {
  long threads = number("threads");
  turns = number("turns");
  work = number("steps");
  counting = number("counter");
  measure(threads, compute, NULL, 1, turns * threads);
}

/* memory */

static long buffer_bytes;
static pthread_barrier_t all_hold;

static void *hold(void *with) {
  (void)with;
  char *buffer = checked(malloc((size_t)buffer_bytes));
  memset(buffer, 1, (size_t)buffer_bytes);
  pthread_barrier_wait(&all_hold);
  pthread_barrier_wait(&gate);
  free(buffer);
  return NULL;
}

/* The writable memory of this process, mapped or resident, in bytes. */
static double memory_of(const char *key) {
  char line[256];
  FILE *status = fopen("/proc/self/status", "r");
  double kilobytes = -1;
  if (!status) fail("/proc/self/status");
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, key, strlen(key))) kilobytes = strtod(line + strlen(key), NULL);
  fclose(status);
  return kilobytes * 1024;
}

static void memory(void) {
  long threads = number("threads");
  buffer_bytes = number("buffer");
  pthread_t *all = checked(calloc((size_t)threads, sizeof *all));
  memset(all, 1, (size_t)threads * sizeof *all);
  pthread_barrier_init(&gate, NULL, (unsigned)threads + 1);
  pthread_barrier_init(&all_hold, NULL, (unsigned)threads + 1);
  double virtual = memory_of("VmData:"), resident = memory_of("VmRSS:");
  double wall = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  for (long i = 0; i < threads; i++) all[i] = start(hold, NULL);
  pthread_barrier_wait(&all_hold);
  wall = seconds(CLOCK_MONOTONIC) - wall;
  cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  virtual = memory_of("VmData:") - virtual;
  resident = memory_of("VmRSS:") - resident;
  pthread_barrier_wait(&gate);
  for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
  printf("{\"operations\":%ld,\"seconds\":%.9f,\"cpu_seconds\":%.9f,\"virtual_bytes_per_thread\":%.1f,\"resident_bytes_per_thread\":%.1f}\n",
         threads, wall, cpu, virtual / (double)threads, resident / (double)threads);
}

int main(int count, char **all) {
  argument_count = count;
  arguments = all;
  const char *which = count > 1 ? all[1] : "";
  if (!strcmp(which, "pipes")) pipes();
  else if (!strcmp(which, "stm")) stm();
  else if (!strcmp(which, "disk-random")) disk();
  else if (!strcmp(which, "spread")) spread();
  else if (!strcmp(which, "memory")) memory();
  else {
    fprintf(stderr, "usage: nptl pipes|stm|disk-random|spread|memory key=value...\n");
    return 2;
  }
  return 0;
}
