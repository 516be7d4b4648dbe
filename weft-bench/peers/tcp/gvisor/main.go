// Echo (port 7), discard (9) and chargen (19) by gVisor's netstack on a TUN device.
//
//	tcp-gvisor DEVICE ADDRESS
//
// A goroutine for each connection, on one processor. Runs until it is killed.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"runtime"

	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/link/tun"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
)

const card = 1

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func mustTcp(err tcpip.Error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	runtime.GOMAXPROCS(1)
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: tcp-gvisor DEVICE ADDRESS")
		os.Exit(2)
	}
	fd, err := tun.Open(os.Args[1])
	must(err)
	link, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: 1500})
	must(err)
	s := stack.New(stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol},
	})
	sack := tcpip.TCPSACKEnabled(true)
	mustTcp(s.SetTransportProtocolOption(tcp.ProtocolNumber, &sack))
	mustTcp(s.CreateNIC(card, link))
	address := tcpip.AddrFromSlice(net.ParseIP(os.Args[2]).To4())
	mustTcp(s.AddProtocolAddress(card, tcpip.ProtocolAddress{
		Protocol:          ipv4.ProtocolNumber,
		AddressWithPrefix: address.WithPrefix(),
	}, stack.AddressProperties{}))
	s.SetRouteTable([]tcpip.Route{{Destination: header.IPv4EmptySubnet, NIC: card}})
	serve(s, address, 7, func(c net.Conn) {
		b := make([]byte, 4096)
		for {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			if _, err := c.Write(b[:n]); err != nil {
				return
			}
		}
	})
	serve(s, address, 9, func(c net.Conn) { io.CopyBuffer(io.Discard, struct{ io.Reader }{c}, make([]byte, 65536)) })
	serve(s, address, 19, func(c net.Conn) {
		zeros := make([]byte, 65536)
		for {
			if _, err := c.Write(zeros); err != nil {
				return
			}
		}
	})
	select {}
}

func serve(s *stack.Stack, address tcpip.Address, port uint16, session func(net.Conn)) {
	l, err := gonet.ListenTCP(s, tcpip.FullAddress{NIC: card, Addr: address, Port: port}, ipv4.ProtocolNumber)
	must(err)
	go func() {
		for {
			c, err := l.Accept()
			must(err)
			go func() {
				defer c.Close()
				session(c)
			}()
		}
	}()
}
