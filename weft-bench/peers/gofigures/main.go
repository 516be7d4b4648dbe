// Goroutines at the workloads of `weft-bench disk-random` and `weft-bench spread`.
//
//	gofigures disk-random processors=1 threads=64 reads=10000 file-bytes=1073741824 file=PATH
//	gofigures spread processors=2 threads=1024 turns=20 steps=10000 counter=1
//
// Prints one JSON object on one line; weft-bench/README.md explains it.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

var arguments = map[string]string{}

func fail(what string) {
	fmt.Fprintln(os.Stderr, "gofigures:", what)
	os.Exit(1)
}

func number(key string) int {
	n, err := strconv.Atoi(arguments[key])
	if err != nil || n < 0 {
		fail(key + " is missing, or no number")
	}
	return n
}

func next(x uint64) uint64 { return x*6364136223846793005 + 1442695040888963407 }

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		fail(err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The clock runs from when all are there until the last has ended.
func measure(threads, operations int, body func(i int)) {
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	ready.Add(threads)
	done.Add(threads)
	for i := 0; i < threads; i++ {
		go func(i int) {
			ready.Done()
			<-gate
			body(i)
			done.Done()
		}(i)
	}
	ready.Wait()
	start, used := time.Now(), cpu()
	close(gate)
	done.Wait()
	fmt.Printf("{\"operations\":%d,\"seconds\":%.9f,\"cpu_seconds\":%.9f}\n",
		operations, time.Since(start).Seconds(), (cpu() - used).Seconds())
}

func disk() {
	threads := number("threads")
	reads := max(1, number("reads")/threads)
	blocks := uint64(number("file-bytes") / 4096)
	fd, err := syscall.Open(arguments["file"], syscall.O_RDONLY|syscall.O_DIRECT|syscall.O_CLOEXEC, 0)
	if err != nil {
		fail(err.Error())
	}
	measure(threads, reads*threads, func(i int) {
		memory := make([]byte, 8192)
		at := (4096 - int(uintptr(unsafe.Pointer(&memory[0]))%4096)) % 4096
		buffer := memory[at : at+4096]
		x := next(uint64(i) + 1)
		for r := 0; r < reads; r++ {
			x = next(x)
			n, err := syscall.Pread(fd, buffer, int64((x>>33)%blocks*4096))
			if err != nil || n != 4096 {
				fail(fmt.Sprint("read: ", n, " ", err))
			}
		}
	})
}

func spread() {
	threads, turns, work, counting := number("threads"), number("turns"), number("steps"), number("counter") > 0
	var mutex sync.Mutex
	shared := 0
	results := make([]uint64, threads)
	measure(threads, turns*threads, func(i int) {
		a := uint64(i) + 1
		for t := 0; t < turns; t++ {
			for w := 0; w < work; w++ {
				a = next(a)
			}
			if counting {
				mutex.Lock()
				shared++
				mutex.Unlock()
			}
			runtime.Gosched()
		}
		results[i] = a
	})
	if counting && shared != turns*threads {
		fail("lost increments")
	}
}

func main() {
	if len(os.Args) < 2 {
		fail("usage: gofigures disk-random|spread key=value...")
	}
	for _, a := range os.Args[2:] {
		key, value, _ := strings.Cut(a, "=")
		arguments[key] = value
	}
	runtime.GOMAXPROCS(max(1, number("processors")))
	switch os.Args[1] {
	case "disk-random":
		disk()
	case "spread":
		spread()
	default:
		fail("no such workload: " + os.Args[1])
	}
}
