/* A TUN device: a network interface of the system whose other end is a descriptor. Each function
 * answers a number of at least 0, or a negated errno. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/if_tun.h>
#endif

static int interface_call(const char *name, unsigned long what, struct ifreq *r)
{
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0) return -errno;
    memset(r->ifr_name, 0, IFNAMSIZ);
    strncpy(r->ifr_name, name, IFNAMSIZ - 1);
    int answer = ioctl(s, what, r) < 0 ? -errno : 0;
    close(s);
    return answer;
}

/* Attach to a device, or make it. What an earlier program has asked to be offloaded is still on in
 * a persistent device, so it is turned off. */
int weft_tun_open(const char *name)
{
#ifdef __linux__
    struct ifreq r;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -errno;
    memset(&r, 0, sizeof r);
    strncpy(r.ifr_name, name, IFNAMSIZ - 1);
    r.ifr_flags = IFF_TUN | IFF_NO_PI;
    if (ioctl(fd, TUNSETIFF, &r) < 0 || ioctl(fd, TUNSETOFFLOAD, 0) < 0) {
        int e = errno;
        close(fd);
        return -e;
    }
    return fd;
#else
    (void)name;
    return -ENOSYS;
#endif
}

int weft_tun_mtu(const char *name)
{
    struct ifreq r;
    memset(&r, 0, sizeof r);
    int e = interface_call(name, SIOCGIFMTU, &r);
    return e < 0 ? e : r.ifr_mtu;
}

/* 1: it is up; 0: it was brought up. */
int weft_tun_up(const char *name)
{
    struct ifreq r;
    memset(&r, 0, sizeof r);
    int e = interface_call(name, SIOCGIFFLAGS, &r);
    if (e < 0) return e;
    if (r.ifr_flags & IFF_UP) return 1;
    r.ifr_flags |= IFF_UP | IFF_RUNNING;
    return interface_call(name, SIOCSIFFLAGS, &r);
}

/* Give the system's end an address, if it has none. Both in the machine's order. 1: it had one. */
int weft_tun_address(const char *name, uint32_t address, uint32_t mask)
{
    struct ifreq r;
    struct sockaddr_in a;
    memset(&r, 0, sizeof r);
    if (interface_call(name, SIOCGIFADDR, &r) == 0) return 1;
    memset(&a, 0, sizeof a);
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(address);
    memset(&r, 0, sizeof r);
    memcpy(&r.ifr_addr, &a, sizeof a);
    int e = interface_call(name, SIOCSIFADDR, &r);
    if (e < 0) return e;
    a.sin_addr.s_addr = htonl(mask);
    memset(&r, 0, sizeof r);
    memcpy(&r.ifr_netmask, &a, sizeof a);
    return interface_call(name, SIOCSIFNETMASK, &r);
}

long weft_tun_read(int fd, void *to, long room)
{
    long n = read(fd, to, room);
    return n < 0 ? -errno : n;
}

long weft_tun_write(int fd, const void *from, long size)
{
    long n = write(fd, from, size);
    return n < 0 ? -errno : n;
}

int weft_tun_close(int fd)
{
    return close(fd) < 0 ? -errno : 0;
}
