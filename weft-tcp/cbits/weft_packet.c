/* A packet socket on a network interface: frames of Ethernet, read and written as weft_tun.c does. Each function answers a
 * number of at least 0, or a negated errno. */
#define _GNU_SOURCE
#include <errno.h>
#include <net/if.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#ifdef __linux__
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/version.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#endif

/* 0: of another kind; 1: it carries frames of Ethernet, and is up; 2: the loopback interface; 3: as 1, but down. Its
 * hardware address, if it is of Ethernet. */
int weft_packet_interface(const char *name, uint64_t *mac)
{
#ifdef __linux__
    struct ifreq r;
    *mac = 0;
    if (strlen(name) >= IFNAMSIZ) return -ENODEV;
    int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0) return -errno;
    memset(&r, 0, sizeof r);
    strcpy(r.ifr_name, name);
    int e = ioctl(s, SIOCGIFFLAGS, &r) < 0 ? -errno : 0, flags = r.ifr_flags;
    if (e == 0 && ioctl(s, SIOCGIFHWADDR, &r) < 0) e = -errno;
    close(s);
    if (e < 0) return e;
    if (flags & IFF_LOOPBACK) return 2;
    if (r.ifr_hwaddr.sa_family != ARPHRD_ETHER) return 0;
    for (int i = 0; i < 6; i++) *mac = *mac << 8 | (uint8_t)r.ifr_hwaddr.sa_data[i];
    return flags & IFF_UP ? 1 : 3;
#else
    (void)name, (void)mac;
    return -ENODEV;
#endif
}

#ifdef __linux__
/* Has the system one of these addresses, on any interface? */
static int has_address(int has4, uint32_t four, int has6, const struct in6_addr *six)
{
    struct ifaddrs *all;
    if (getifaddrs(&all) < 0) return 0;
    int has = 0;
    for (struct ifaddrs *i = all; i; i = i->ifa_next) {
        if (!i->ifa_addr) continue;
        if (has4 && i->ifa_addr->sa_family == AF_INET) has |= ((struct sockaddr_in *)i->ifa_addr)->sin_addr.s_addr == htonl(four);
        if (has6 && i->ifa_addr->sa_family == AF_INET6) has |= memcmp(&((struct sockaddr_in6 *)i->ifa_addr)->sin6_addr, six, 16) == 0;
    }
    freeifaddrs(all);
    return has;
}

/* As much memory as is allowed, up to this. */
static void give_room(int fd, int forced, int option, int room)
{
    if (setsockopt(fd, SOL_SOCKET, forced, &room, sizeof room) < 0) setsockopt(fd, SOL_SOCKET, option, &room, sizeof room);
}

/* Have frames come that are for this group of version 6, by the last four bytes of its address. */
static int join_group(int fd, int index, uint32_t last)
{
    struct packet_mreq m = {.mr_ifindex = index, .mr_type = PACKET_MR_MULTICAST, .mr_alen = 6, .mr_address = {0x33, 0x33, last >> 24, last >> 16, last >> 8, last}};
    return setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &m, sizeof m);
}
#endif

/* A socket for the frames of an interface that may concern an address of version 4, one of version 6, whose halves these are, or
 * both. EADDRINUSE: the system has an address. EBUSY: another program has it (that of version 4, if there is one). */
int weft_packet_open(const char *name, int has4, uint32_t four, int has6, uint64_t high, uint64_t low)
{
#ifdef __linux__
    struct in6_addr six;
    for (int i = 0; i < 8; i++) {
        six.s6_addr[i] = high >> (56 - 8 * i);
        six.s6_addr[8 + i] = low >> (56 - 8 * i);
    }
    if (has_address(has4, four, has6, &six)) return -EADDRINUSE;
    int index = if_nametoindex(name);
    if (index == 0) return -errno;
    /* Nothing comes before it is bound. */
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    uint32_t group = 0xff000000u | (low & 0xffffff);
    /* Not what leaves, nor what is of a VLAN. Version 4: ARP, and what is for the address. Version 6: what is for the last four
     * bytes of the address, of the group in which its hardware address is asked for, or of that of all hosts. What is for other hardware is taken: after
     * the interface got a new hardware address, what still comes for the old one makes the stack look. */
    enum { REFUSE = 14, TAKE = 15 };
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_PKTTYPE),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, REFUSE - 2, 0),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, REFUSE - 4),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_ARP, (has4 ? TAKE : REFUSE) - 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IP, (has4 ? 8 : REFUSE) - 7, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ETH_P_IPV6, (has6 ? 10 : REFUSE) - 8, REFUSE - 8),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 30),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, four, TAKE - 10, REFUSE - 10),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 50),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)low, TAKE - 12, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, group, TAKE - 13, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 1, TAKE - 14, REFUSE - 14),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, 0x40000),
    };
    struct sock_fprog filter = {sizeof code / sizeof *code, code};
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = index};
    int one = 1;
    give_room(fd, SO_RCVBUFFORCE, SO_RCVBUF, 4 << 20);
    give_room(fd, SO_SNDBUFFORCE, SO_SNDBUF, 4 << 20);
    if (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &one, sizeof one) < 0 || setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof filter) < 0
        || (has6 && (join_group(fd, index, group) < 0 || join_group(fd, index, 1) < 0)) || bind(fd, (struct sockaddr *)&to, sizeof to) < 0) {
        int e = errno;
        close(fd);
        return -e;
    }
#if LINUX_VERSION_CODE >= KERNEL_VERSION(5, 15, 0)
    /* A group of one: another program with this address would reset our connections, and we its. */
    uint64_t own = has4 ? four : low ^ high;
    struct fanout_args only = {.id = (uint16_t)(index * 40503u ^ (own ^ own >> 16) * 31u), .type_flags = PACKET_FANOUT_CPU, .max_num_members = 1};
    if (setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &only, sizeof only) < 0 && errno == ENOSPC) {
        close(fd);
        return -EBUSY;
    }
#endif
    return fd;
#else
    (void)name, (void)has4, (void)four, (void)has6, (void)high, (void)low;
    return -ENOSYS;
#endif
}

/* Is the interface of a socket still there? */
int weft_packet_there(int fd)
{
#ifdef __linux__
    struct sockaddr_ll at;
    socklen_t size = sizeof at;
    return getsockname(fd, (struct sockaddr *)&at, &size) == 0 && at.sll_ifindex > 0;
#else
    (void)fd;
    return 0;
#endif
}

/* A socket for all packets that pass an interface, without the headers of its link; of any program. */
int weft_packet_watch(const char *name)
{
#ifdef __linux__
    int index = if_nametoindex(name);
    if (index == 0) return -errno;
    /* Nothing comes before it is bound. */
    int fd = socket(AF_PACKET, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    struct sockaddr_ll to = {.sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = index};
    int one = 1;
    give_room(fd, SO_RCVBUFFORCE, SO_RCVBUF, 16 << 20);
    if (setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &one, sizeof one) < 0 || bind(fd, (struct sockaddr *)&to, sizeof to) < 0) {
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

/* The next packet, its length; 0 for one that is not of IP. It passed the interface at this time, in nanoseconds; 1: the
 * system or another packet socket has sent it through the interface. */
long weft_packet_watched(int fd, void *to, long room, int64_t *time, int *outgoing)
{
#ifdef __linux__
    char control[CMSG_SPACE(sizeof(struct timespec))];
    struct sockaddr_ll from;
    struct iovec v = {to, room};
    struct msghdr m = {.msg_name = &from, .msg_namelen = sizeof from, .msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    long n = recvmsg(fd, &m, 0);
    if (n < 0) return -errno;
    *outgoing = from.sll_pkttype == PACKET_OUTGOING;
    *time = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_TIMESTAMPNS) {
            struct timespec t;
            memcpy(&t, CMSG_DATA(c), sizeof t);
            *time = t.tv_sec * 1000000000ll + t.tv_nsec;
        }
    return from.sll_protocol == htons(ETH_P_IP) || from.sll_protocol == htons(ETH_P_IPV6) ? n : 0;
#else
    (void)fd, (void)to, (void)room, (void)time, (void)outgoing;
    return -ENOSYS;
#endif
}

/* How many packets were lost since the last call, because the socket's memory was full. */
int weft_packet_lost(int fd)
{
#ifdef __linux__
    struct tpacket_stats s;
    socklen_t size = sizeof s;
    return getsockopt(fd, SOL_PACKET, PACKET_STATISTICS, &s, &size) < 0 ? -errno : (int)s.tp_drops;
#else
    (void)fd;
    return -ENOSYS;
#endif
}
