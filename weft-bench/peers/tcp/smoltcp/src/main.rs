//! Echo (port 7), discard (9) and chargen (19) by smoltcp on a TUN device.
//!
//!     tcp-smoltcp DEVICE ADDRESS
//!
//! A socket of smoltcp listens for one connection, so some are kept listening. Those for echo
//! have buffers of 4 KB, the others of 256 KB. Runs until it is killed.

use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{wait, Medium, TunTapInterface};
use smoltcp::socket::tcp::{CongestionControl, Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{HardwareAddress, IpAddress, IpCidr};
use std::os::fd::AsRawFd;

const LISTENING: usize = 128;

fn socket(port: u16) -> Socket<'static> {
    let size = if port == 7 { 4096 } else { 262144 };
    let mut s = Socket::new(SocketBuffer::new(vec![0; size]), SocketBuffer::new(vec![0; size]));
    s.set_nagle_enabled(false);
    s.set_congestion_control(CongestionControl::Cubic);
    s.listen(port).unwrap();
    s
}

/// Serves what a socket has, and notes whether there was anything. Answers whether its connection
/// has ended.
fn serve(s: &mut Socket, port: u16, zeros: &[u8], worked: &mut bool) -> bool {
    match port {
        7 => {
            while s.can_recv() && s.can_send() {
                let room = s.send_capacity() - s.send_queue();
                let mut copy = [0u8; 4096];
                let most = room.min(copy.len());
                let n = s.recv_slice(&mut copy[..most]).unwrap_or(0);
                if n == 0 || s.send_slice(&copy[..n]).is_err() {
                    break;
                }
                *worked = true;
            }
        }
        9 => {
            while s.can_recv() {
                let _ = s.recv(|data| (data.len(), ()));
                *worked = true;
            }
        }
        _ => {
            while s.can_send() && s.send_slice(zeros).unwrap_or(0) > 0 {
                *worked = true;
            }
        }
    }
    if s.state() == State::CloseWait && !s.can_recv() {
        s.close();
        *worked = true;
    }
    !s.is_open()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let (device, address) = (arguments.next().expect("DEVICE"), arguments.next().expect("ADDRESS"));
    let mut device = TunTapInterface::new(&device, Medium::Ip).unwrap();
    let fd = device.as_raw_fd();
    let mut interface = Interface::new(Config::new(HardwareAddress::Ip), &mut device, Instant::now());
    let address: IpAddress = address.parse().unwrap();
    interface.update_ip_addrs(|all| all.push(IpCidr::new(address, 24)).unwrap());
    let mut sockets = SocketSet::new(vec![]);
    let mut handles: Vec<(SocketHandle, u16)> = vec![];
    for port in [7, 9, 19] {
        for _ in 0..if port == 7 { LISTENING } else { 4 } {
            handles.push((sockets.add(socket(port)), port));
        }
    }
    let zeros = vec![0u8; 65536];
    loop {
        interface.poll(Instant::now(), &mut device, &mut sockets);
        let (mut listening, mut i, mut worked) = (0, 0, false);
        while i < handles.len() {
            let (handle, port) = handles[i];
            let s = sockets.get_mut::<Socket>(handle);
            match s.state() {
                State::Listen => listening += usize::from(port == 7),
                State::TimeWait => {}
                _ if serve(s, port, &zeros, &mut worked) => {
                    if port == 7 && listening >= LISTENING {
                        sockets.remove(handle);
                        handles.swap_remove(i);
                        continue;
                    }
                    s.listen(port).unwrap();
                    listening += usize::from(port == 7);
                }
                _ => {}
            }
            i += 1;
        }
        for _ in listening..LISTENING {
            handles.push((sockets.add(socket(7)), 7));
        }
        if !worked {
            let delay = interface.poll_delay(Instant::now(), &sockets);
            wait(fd, delay).unwrap();
        }
    }
}
