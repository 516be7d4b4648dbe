// Go's net/http client: many requests at a time on connections that are kept, streamed
// bodies in both directions, trailer fields, 100 Continue, and requests that are given up.
//
//	interop URL_OF_WEFT URL_OF_ECHO
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func equal(what string, got, wanted any) {
	if got != wanted {
		must(fmt.Errorf("%s: wanted %v, got %v", what, wanted, got))
	}
}

func body(response *http.Response, err error) string {
	must(err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	must(err)
	return string(text)
}

func main() {
	weft, echo := os.Args[1], os.Args[2]
	client := &http.Client{
		Timeout:   20 * time.Second,
		Transport: &http.Transport{MaxIdleConnsPerHost: 16, ExpectContinueTimeout: 10 * time.Second},
	}

	var reused atomic.Int64
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if info.Reused {
			reused.Add(1)
		}
	}}
	var all sync.WaitGroup
	for worker := 0; worker < 16; worker++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := 0; i < 50; i++ {
				request, err := http.NewRequestWithContext(httptrace.WithClientTrace(context.Background(), trace), "GET", weft+"/hello.txt", nil)
				must(err)
				equal("a file", body(client.Do(request)), "0123456789abcdef")
			}
		}()
	}
	all.Wait()
	if reused.Load() < 750 {
		must(fmt.Errorf("only %d of 800 requests found a connection", reused.Load()))
	}

	big := strings.Repeat("weft ", 400_000)
	// Of a length that is known, and in chunks.
	equal("echo", body(client.Post(echo+"/echo", "text/plain", strings.NewReader(big))), big)
	equal("echo of chunks", body(client.Post(echo+"/echo", "text/plain", io.MultiReader(strings.NewReader(big), strings.NewReader("end")))), big+"end")

	// Both directions at a time: each piece comes back before the next one is sent.
	reader, writer := io.Pipe()
	request, err := http.NewRequest("POST", echo+"/echo", reader)
	must(err)
	go func() { _, _ = writer.Write([]byte("first")) }()
	response, err := client.Do(request)
	must(err)
	piece := make([]byte, 5)
	for _, word := range []string{"first", "again", "third"} {
		if word != "first" {
			_, err = writer.Write([]byte(word))
			must(err)
		}
		_, err = io.ReadFull(response.Body, piece)
		must(err)
		equal("a piece", string(piece), word)
	}
	must(writer.Close())
	equal("the rest", body(response, nil), "")

	// Trailer fields there and back.
	request, err = http.NewRequest("POST", echo+"/echo", io.MultiReader(strings.NewReader("x")))
	must(err)
	request.Trailer = http.Header{"X-Sum": {"1"}}
	response, err = client.Do(request)
	equal("echo", body(response, err), "x")
	equal("trailer field", response.Trailer.Get("X-Sum"), "1")

	request, err = http.NewRequest("PUT", echo+"/length", bytes.NewReader(make([]byte, 1_000_000)))
	must(err)
	request.Header.Set("Expect", "100-continue")
	begin := time.Now()
	equal("length", body(client.Do(request)), "1000000\n")
	if time.Since(begin) > 8*time.Second {
		must(fmt.Errorf("100 Continue did not come"))
	}

	response, err = client.Head(weft + "/large.bin")
	must(err)
	equal("length", response.ContentLength, int64(5_000_000))
	equal("large", len(body(client.Get(weft+"/large.bin"))), 5_000_000)

	// Given up in the middle.
	for i := 0; i < 20; i++ {
		leaving, leave := context.WithCancel(context.Background())
		request, err = http.NewRequestWithContext(leaving, "GET", echo+"/slow?1000", nil)
		must(err)
		response, err = client.Do(request)
		must(err)
		_, err = response.Body.Read(piece)
		must(err)
		leave()
		response.Body.Close()
	}
	equal("then", body(client.Get(weft+"/hello.txt")), "0123456789abcdef")
	fmt.Printf("800 requests at 16 a time, %d times reused\n", reused.Load())
}
