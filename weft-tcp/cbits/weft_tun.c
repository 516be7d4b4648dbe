/* A TUN device: a network interface of the system whose other end is a descriptor. Each function
 * answers a number of at least 0, or a negated errno. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/if_tun.h>
#include <linux/virtio_net.h>
#include <sys/uio.h>
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

#ifdef __linux__
/* Linux lets several programs have queues of one device, each of which would get a part of the packets. So the one that
 * has such a device locks a byte of /dev/net/tun, by the device's name and its network namespace. The lock is there
 * for as long as the descriptor is, also in another process that it was passed to. */
static int hold(int fd, const char *name)
{
    uint32_t h = 2166136261u;
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * 16777619u;
    struct stat net;
    uint64_t space = stat("/proc/self/ns/net", &net) == 0 ? (uint32_t)net.st_ino : 0;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(space << 31 | h >> 1), .l_len = 1};
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) return 0;
    return errno == EAGAIN || errno == EACCES ? EBUSY : errno;
}
#endif

/* Attach to a device, or make it; with queues as one of its queues, which fails with EINVAL if it was made with one
 * only. The first is for this program alone, and fails with EBUSY if another has the device. With offload its packets have
 * a header in front (struct virtio_net_hdr) that says what of checksums and segmentation is still to be done. What an
 * earlier program has asked for is still on in a persistent device, so it is set in any case. */
int weft_tun_open(const char *name, int offload, int queues, int first)
{
#ifdef __linux__
    struct ifreq r;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return -errno;
    int busy = first ? hold(fd, name) : 0;
    if (busy) {
        close(fd);
        return -busy;
    }
    memset(&r, 0, sizeof r);
    strncpy(r.ifr_name, name, IFNAMSIZ - 1);
    r.ifr_flags = IFF_TUN | IFF_NO_PI | (offload ? IFF_VNET_HDR : 0) | (queues ? IFF_MULTI_QUEUE : 0);
    int header = sizeof(struct virtio_net_hdr);
    if (ioctl(fd, TUNSETIFF, &r) < 0 || (offload && ioctl(fd, TUNSETVNETHDRSZ, &header) < 0)
        || ioctl(fd, TUNSETOFFLOAD, offload ? TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 : 0) < 0) {
        int e = errno;
        close(fd);
        return -e;
    }
    return fd;
#else
    (void)name, (void)offload, (void)queues, (void)first;
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

/* Give the system's end an address of version 6, whose halves these are. One that is valid on the link only, which
 * Linux makes by itself, does not count. */
int weft_tun_address6(const char *name, uint64_t high, uint64_t low, int prefix)
{
#ifdef __linux__
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0) return -errno;
    int has = 0;
    for (struct ifaddrs *i = all; i; i = i->ifa_next)
        if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET6 && strcmp(i->ifa_name, name) == 0
            && !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr))
            has = 1;
    freeifaddrs(all);
    if (has) return 1;
    /* The kernel's struct in6_ifreq, whose header does not go with those of the C library. */
    struct {
        struct in6_addr address;
        uint32_t prefix;
        int index;
    } r;
    for (int i = 0; i < 8; i++) {
        r.address.s6_addr[i] = high >> (56 - 8 * i);
        r.address.s6_addr[8 + i] = low >> (56 - 8 * i);
    }
    r.prefix = prefix;
    r.index = if_nametoindex(name);
    int s = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0) return -errno;
    int answer = ioctl(s, SIOCSIFADDR, &r) < 0 ? -errno : 0;
    close(s);
    return answer;
#else
    (void)name, (void)high, (void)low, (void)prefix;
    return -ENOSYS;
#endif
}

/* Read a packet. With offload *verified says whether its checksum needs no look: it was checked, or
 * the packet has not left the machine. */
long weft_tun_read(int fd, int offload, void *to, long room, int *verified)
{
#ifdef __linux__
    if (offload) {
        struct virtio_net_hdr h;
        struct iovec v[2] = {{&h, sizeof h}, {to, room}};
        long n = readv(fd, v, 2);
        if (n < 0) return -errno;
        *verified = (h.flags & (VIRTIO_NET_HDR_F_NEEDS_CSUM | VIRTIO_NET_HDR_F_DATA_VALID)) != 0;
        return n < (long)sizeof h ? 0 : n - (long)sizeof h;
    }
#endif
    long n = read(fd, to, room);
    *verified = 0;
    return n < 0 ? -errno : n;
}

/* Send a packet, after the header of a link with this length. With offload, and if segment is not negative: complete
 * the checksum of TCP, whose header is at this place; if segment is not 0 cut the payload after headers of this length
 * into pieces of that size. */
long weft_tun_write(int fd, int offload, const void *from, long size, int link, int tcp, int headers, int segment)
{
#ifdef __linux__
    if (offload) {
        struct virtio_net_hdr h = {0};
        struct iovec v[2] = {{&h, sizeof h}, {(void *)from, size}};
        if (segment >= 0) {
            h.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM;
            h.csum_start = tcp;
            h.csum_offset = 16;
        }
        if (segment > 0) {
            h.gso_type = ((const uint8_t *)from)[link] >> 4 == 4 ? VIRTIO_NET_HDR_GSO_TCPV4 : VIRTIO_NET_HDR_GSO_TCPV6;
            h.gso_size = segment;
            h.hdr_len = headers;
        }
        long n = writev(fd, v, 2);
        return n < 0 ? -errno : n;
    }
#endif
    (void)offload, (void)link, (void)tcp, (void)headers, (void)segment;
    long n = write(fd, from, size);
    return n < 0 ? -errno : n;
}

int weft_tun_close(int fd)
{
    return close(fd) < 0 ? -errno : 0;
}
