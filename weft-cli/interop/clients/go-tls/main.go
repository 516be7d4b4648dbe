// Go's crypto/tls: connections that are new each time, and how long their greetings were.
//
//	interop-tls URL AUTHORITY COUNT
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
)

// The first write of a connection is the greeting.
type noting struct {
	net.Conn
	first int
}

func (c *noting) Write(bytes []byte) (int, error) {
	if c.first == 0 {
		c.first = len(bytes)
	}
	return c.Conn.Write(bytes)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	authority, err := os.ReadFile(os.Args[2])
	must(err)
	count, err := strconv.Atoi(os.Args[3])
	must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	good, shortest, longest := 0, 1<<30, 0
	var problem error
	for i := 0; i < count; i++ {
		var connection *noting
		client := &http.Client{Transport: &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{RootCAs: roots},
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				connection = &noting{Conn: c}
				return connection, err
			},
		}}
		response, err := client.Get(os.Args[1])
		if err == nil {
			_, err = io.ReadAll(response.Body)
			response.Body.Close()
		}
		if err != nil {
			problem = err
		} else if response.StatusCode == 200 {
			good++
		}
		if connection != nil {
			shortest, longest = min(shortest, connection.first), max(longest, connection.first)
		}
	}
	fmt.Printf("%d of %d, greetings of %d to %d bytes\n", good, count, shortest, longest)
	if good < count {
		must(fmt.Errorf("the last that failed: %v", problem))
	}
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
}
