// Goroutines beside Weft's threads: how long a switch takes (yield), what a
// sleeping goroutine costs (timers), and how much memory one occupies.
//
//	gosched yield  --threads N --switches M [--procs P]
//	gosched timers --threads N [--sleep-ms S] [--procs P]
//
// Prints one JSON object on one line. The phases are those of
// `weft-bench yield` and `weft-bench timers`; weft-bench/README.md explains them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		usage()
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	threads := flags.Int("threads", 1000, "goroutines")
	switches := flags.Int("switches", 1000000, "switches in all (yield)")
	sleep := flags.Int("sleep-ms", 1000, "from the start to the common deadline (timers)")
	procs := flags.Int("procs", 1, "GOMAXPROCS")
	if err := flags.Parse(os.Args[2:]); err != nil || *threads < 1 || *switches < 1 || *procs < 1 {
		usage()
	}
	runtime.GOMAXPROCS(*procs)
	var result map[string]any
	switch os.Args[1] {
	case "yield":
		result = yield(*threads, *switches)
	case "timers":
		result = timers(*threads, time.Duration(*sleep)*time.Millisecond)
	default:
		usage()
	}
	result["threads"] = *threads
	result["procs"] = *procs
	line, err := json.Marshal(result)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gosched:", err)
		os.Exit(1)
	}
	fmt.Println(string(line))
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: gosched yield|timers --threads N [--switches M] [--sleep-ms S] [--procs P]")
	os.Exit(2)
}

// liveBytes is what the goroutines and their stacks occupy once the garbage
// collector has run: the figure that stands beside the live heap of a Haskell
// program.
func liveBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// yield: every goroutine first circles in the hold loop, so that memory is
// measured while all of them sit in the run queue; then each yields its share.
// They finish together, so all are there during the whole measurement.
func yield(threads, switches int) map[string]any {
	share := (switches + threads - 1) / threads
	before := liveBytes()
	gate := make(chan struct{})
	var held atomic.Int64
	var running atomic.Bool
	var done sync.WaitGroup
	done.Add(threads)
	for i := 0; i < threads; i++ {
		go func() {
			<-gate
			held.Add(1)
			for !running.Load() {
				runtime.Gosched()
			}
			for j := 0; j < share; j++ {
				runtime.Gosched()
			}
			done.Done()
		}()
	}
	close(gate)
	for held.Load() < int64(threads) {
		runtime.Gosched()
	}
	live := liveBytes() - before
	// The collector would add its own work to some runs and not to others.
	debug.SetGCPercent(-1)
	cpu, start := cpuTime(), time.Now()
	running.Store(true)
	done.Wait()
	elapsed, used := time.Since(start), cpuTime()-cpu
	total := float64(share) * float64(threads)
	return map[string]any{
		"switches":              share * threads,
		"ns_per_switch":         float64(elapsed.Nanoseconds()) / total,
		"cpu_ns_per_switch":     float64(used.Nanoseconds()) / total,
		"live_bytes_per_thread": float64(live) / float64(threads),
	}
}

// timers: all goroutines sleep until one common deadline, so that all are
// asleep at once and all wake at once.
func timers(threads int, sleep time.Duration) map[string]any {
	before := liveBytes()
	var asleep, woken atomic.Int64
	allAsleep, allWoken := make(chan struct{}), make(chan struct{})
	cpu, start := cpuTime(), time.Now()
	deadline := start.Add(sleep)
	for i := 0; i < threads; i++ {
		go func() {
			if asleep.Add(1) == int64(threads) {
				close(allAsleep)
			}
			time.Sleep(time.Until(deadline))
			if woken.Add(1) == int64(threads) {
				close(allWoken)
			}
		}()
	}
	<-allAsleep
	created, cpuCreated := time.Since(start), cpuTime()-cpu
	live := liveBytes() - before
	atOnce := int64(threads) - woken.Load()
	cpu = cpuTime()
	<-allWoken
	wake, cpuWake := time.Since(deadline), cpuTime()-cpu
	n := float64(threads)
	return map[string]any{
		"create_ns_per_thread": float64(created.Nanoseconds()) / n,
		"wake_ns_per_thread":   float64(wake.Nanoseconds()) / n,
		"total_ns_per_thread":  float64((created + wake).Nanoseconds()) / n,
		"cpu_ns_per_thread":    float64((cpuCreated + cpuWake).Nanoseconds()) / n,
		"bytes_per_thread":     float64(live) / n,
		"asleep_at_once":       atOnce,
	}
}
