// Go's net/http beside Weft's server.
//
//	gohttp --port P --root DIR | --version
//
// The comparison's server: the page of DIR from memory, a greeting at
// /hello, and the other files of DIR with http.FileServer. Give it GOMAXPROCS=1.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"
)

var greeting = []byte("Hello, world!")

// bytesOf answers with the same bytes for ever.
func bytesOf(kind string, body []byte) http.HandlerFunc {
	length := []string{strconv.Itoa(len(body))}
	kinds := []string{kind}
	return func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = kinds
		h["Content-Length"] = length
		_, _ = w.Write(body)
	}
}

func main() {
	port := flag.Int("port", 0, "on 127.0.0.1")
	root := flag.String("root", "", "the directory")
	version := flag.Bool("version", false, "say what this is")
	flag.Parse()
	if *version {
		fmt.Println("net/http of", runtime.Version())
		return
	}
	if *port < 1 || *port > 65535 || *root == "" {
		fmt.Fprintln(os.Stderr, "usage: gohttp --port P --root DIR")
		os.Exit(2)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/hello", bytesOf("text/plain", greeting))
	if page, err := os.ReadFile(filepath.Join(*root, "page.html")); err == nil {
		mux.HandleFunc("/page.html", bytesOf("text/html", page))
	}
	mux.Handle("/", http.FileServer(http.Dir(*root)))
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", *port))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: mux, IdleTimeout: time.Hour}
	log.Fatal(server.Serve(listener))
}
