// Goroutines at the workloads of `weft-bench pipes`, `stm`, `disk-random`, `spread` and `memory`.
//
//	gofigures pipes processors=1 pairs=128 bytes=32768 capacity=4096 idle=0 total=268435456 [fifos=DIR]
//	gofigures stm processors=2 total=1000000
//	gofigures disk-random processors=1 threads=64 reads=10000 file-bytes=1073741824 file=PATH
//	gofigures spread processors=2 threads=1024 turns=20 steps=10000 counter=1
//	gofigures memory threads=1024 buffer=4096
//
// Prints one JSON object on one line; weft-bench/README.md explains it.
package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
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

// Through Go's own poller, as its files of pipes are.
func pipes() {
	pairs, bytes, idle := number("pairs"), number("bytes"), number("idle")
	rounds := max(1, number("total")/(2*bytes*pairs))
	pipe := func() (*os.File, *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			fail(err.Error())
		}
		raw, err := w.SyscallConn()
		if err == nil {
			raw.Control(func(fd uintptr) {
				_, _, code := syscall.Syscall(syscall.SYS_FCNTL, fd, 1031, uintptr(number("capacity")))
				if code != 0 {
					fail("F_SETPIPE_SZ: " + code.Error())
				}
			})
		}
		return r, w
	}
	for i := 0; i < idle; i++ {
		fifo, err := os.OpenFile(arguments["fifos"]+"/"+strconv.Itoa(i), os.O_RDWR|syscall.O_NONBLOCK, 0)
		if err != nil {
			fail(err.Error())
		}
		go fifo.Read(make([]byte, 1))
	}
	if idle > 0 {
		time.Sleep(50 * time.Millisecond)
	}
	in, out := make([]*os.File, 2*pairs), make([]*os.File, 2*pairs)
	for i := 0; i < pairs; i++ {
		in[2*i+1], out[2*i] = pipe()
		in[2*i], out[2*i+1] = pipe()
	}
	measure(2*pairs, rounds*2*bytes*pairs, func(i int) {
		buffer := make([]byte, bytes)
		take := func() {
			if _, err := io.ReadFull(in[i], buffer); err != nil {
				fail(err.Error())
			}
		}
		give := func() {
			if _, err := out[i].Write(buffer); err != nil {
				fail(err.Error())
			}
		}
		for r := 0; r < rounds; r++ {
			if i%2 == 0 {
				give()
				take()
			} else {
				take()
				give()
			}
		}
	})
}

func stm() {
	processors := number("processors")
	share := max(1, number("total")/processors)
	var mutex sync.Mutex
	shared := 0
	measure(processors, share*processors, func(int) {
		for i := 0; i < share; i++ {
			mutex.Lock()
			shared++
			mutex.Unlock()
		}
	})
	if shared != share*processors {
		fail("lost increments")
	}
}

// The writable memory of this process, mapped and resident, in bytes.
func held() (virtual, resident float64) {
	debug.FreeOSMemory()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		fail(err.Error())
	}
	for _, line := range strings.Split(string(status), "\n") {
		words := strings.Fields(line)
		if len(words) > 1 {
			n, _ := strconv.ParseFloat(words[1], 64)
			switch words[0] {
			case "VmData:":
				virtual = n * 1024
			case "VmRSS:":
				resident = n * 1024
			}
		}
	}
	return
}

func memory() {
	threads, size := number("threads"), number("buffer")
	var ready, done sync.WaitGroup
	gate := make(chan struct{})
	ready.Add(threads)
	done.Add(threads)
	virtual, resident := held()
	start, used := time.Now(), cpu()
	for i := 0; i < threads; i++ {
		go func() {
			buffer := make([]byte, size)
			for j := range buffer {
				buffer[j] = 1
			}
			ready.Done()
			<-gate
			runtime.KeepAlive(buffer)
			done.Done()
		}()
	}
	ready.Wait()
	wall, spent := time.Since(start).Seconds(), (cpu() - used).Seconds()
	virtual2, resident2 := held()
	close(gate)
	done.Wait()
	each := func(a, b float64) float64 { return (b - a) / float64(threads) }
	fmt.Printf("{\"operations\":%d,\"seconds\":%.9f,\"cpu_seconds\":%.9f,\"virtual_bytes_per_thread\":%.1f,\"resident_bytes_per_thread\":%.1f}\n",
		threads, wall, spent, each(virtual, virtual2), each(resident, resident2))
}

func main() {
	if len(os.Args) < 2 {
		fail("usage: gofigures pipes|stm|disk-random|spread|memory key=value...")
	}
	for _, a := range os.Args[2:] {
		key, value, _ := strings.Cut(a, "=")
		arguments[key] = value
	}
	if _, given := arguments["processors"]; given {
		runtime.GOMAXPROCS(max(1, number("processors")))
	}
	switch os.Args[1] {
	case "disk-random":
		disk()
	case "spread":
		spread()
	case "pipes":
		pipes()
	case "stm":
		stm()
	case "memory":
		memory()
	default:
		fail("no such workload: " + os.Args[1])
	}
}
