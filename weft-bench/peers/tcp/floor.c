/* Echo by a responder that knows no connections: what a packet on a TUN device costs at the least.
 *
 *   tcp-floor DEVICE
 *
 * Each segment is answered from what it says itself: a SYN with a SYN, bytes with the same bytes, a
 * FIN with a FIN. Nothing is kept, nothing is sent again. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static uint32_t sum(const void *at, size_t size, uint32_t s) {
  const uint8_t *p = at;
  for (; size > 1; p += 2, size -= 2) {
    uint16_t w;
    memcpy(&w, p, 2);
    s += w;
  }
  return size ? s + *p : s;
}

static uint16_t folded(uint32_t s) {
  while (s >> 16) s = (s & 0xffff) + (s >> 16);
  return (uint16_t)~s;
}

static uint16_t tcp_sum(const struct iphdr *ip, const void *tcp, size_t size) {
  uint32_t s = sum(&ip->saddr, 8, htons(IPPROTO_TCP) + (uint32_t)htons((uint16_t)size));
  return folded(sum(tcp, size, s));
}

int main(int argc, char **argv) {
  struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (argc != 2) return 2;
  strncpy(r.ifr_name, argv[1], IFNAMSIZ - 1);
  if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0 || ioctl(fd, TUNSETOFFLOAD, 0) < 0) return perror("tun"), 1;
  for (;;) {
    static uint8_t in[2048], out[2048];
    ssize_t n = read(fd, in, sizeof in);
    if (n < 0) {
      struct pollfd p = {.fd = fd, .events = POLLIN};
      poll(&p, 1, -1);
      continue;
    }
    struct iphdr *ip = (struct iphdr *)in, *oip = (struct iphdr *)out;
    struct tcphdr *t = (struct tcphdr *)(in + 20), *o = (struct tcphdr *)(out + 20);
    if (n < 40 || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_TCP || t->doff < 5) continue;
    size_t total = ntohs(ip->tot_len), head = 20 + 4u * t->doff;
    if (total > (size_t)n || head > total || folded(sum(ip, 20, 0)) || tcp_sum(ip, t, total - 20)) continue;
    size_t payload = total - head;
    if (t->rst || (!t->syn && !t->fin && !payload)) continue;
    size_t size = 40 + payload;
    memset(out, 0, 40);
    oip->version = 4, oip->ihl = 5, oip->ttl = 64, oip->protocol = IPPROTO_TCP;
    oip->tot_len = htons((uint16_t)size), oip->saddr = ip->daddr, oip->daddr = ip->saddr;
    oip->check = folded(sum(oip, 20, 0));
    o->source = t->dest, o->dest = t->source, o->doff = 5, o->ack = 1, o->window = htons(65535);
    o->syn = t->syn, o->fin = t->fin, o->psh = payload > 0;
    o->seq = t->syn ? htonl(1) : t->ack_seq;
    o->ack_seq = htonl(ntohl(t->seq) + (uint32_t)payload + t->syn + t->fin);
    memcpy(out + 40, in + head, payload);
    o->check = tcp_sum(oip, o, size - 20);
    if (write(fd, out, size) < 0) continue;
  }
}
