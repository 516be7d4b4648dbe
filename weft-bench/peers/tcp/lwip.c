/* Echo (port 7), discard (9) and chargen (19) by lwIP on a TUN device, with its raw interface under
 * the core lock.
 *
 *   tcp-lwip DEVICE ADDRESS
 *
 * It measures lwIP as distributions build it (liblwip-dev). Runs until it is killed. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <lwip/ip4.h>
#include <lwip/tcp.h>
#include <lwip/tcpip.h>

static int fd;
static char zeros[TCP_MSS * 16];

static err_t output(struct netif *card, struct pbuf *p, const ip4_addr_t *to) {
  static char packet[2048];
  (void)card, (void)to;
  u16_t n = pbuf_copy_partial(p, packet, sizeof packet, 0);
  return write(fd, packet, n) < 0 ? ERR_IF : ERR_OK;
}

static err_t begin(struct netif *card) {
  card->name[0] = 't', card->name[1] = 'n';
  card->mtu = 1500;
  card->output = output;
  return ERR_OK;
}

static err_t end(struct tcp_pcb *c) {
  tcp_recv(c, NULL), tcp_sent(c, NULL);
  if (tcp_close(c) == ERR_OK) return ERR_OK;
  tcp_abort(c);
  return ERR_ABRT;
}

static err_t echo(void *a, struct tcp_pcb *c, struct pbuf *p, err_t e) {
  (void)a, (void)e;
  if (!p) return end(c);
  for (struct pbuf *q = p; q; q = q->next) tcp_write(c, q->payload, q->len, TCP_WRITE_FLAG_COPY);
  tcp_recved(c, p->tot_len);
  pbuf_free(p);
  return tcp_output(c);
}

static err_t discard(void *a, struct tcp_pcb *c, struct pbuf *p, err_t e) {
  (void)a, (void)e;
  if (!p) return end(c);
  tcp_recved(c, p->tot_len);
  pbuf_free(p);
  return ERR_OK;
}

static err_t generate(void *a, struct tcp_pcb *c, u16_t gone) {
  (void)a, (void)gone;
  u32_t room = tcp_sndbuf(c) / TCP_MSS * TCP_MSS;
  while (room > 0) {
    u16_t n = (u16_t)LWIP_MIN(room, sizeof zeros);
    if (tcp_write(c, zeros, n, TCP_WRITE_FLAG_COPY) != ERR_OK) break;
    room -= n;
  }
  return tcp_output(c);
}

static err_t accepted(void *a, struct tcp_pcb *c, err_t e) {
  u16_t port = c ? c->local_port : 0;
  (void)a;
  if (e != ERR_OK || !c) return ERR_VAL;
  tcp_nagle_disable(c);
  tcp_recv(c, port == 7 ? echo : discard);
  if (port != 19) return ERR_OK;
  tcp_sent(c, generate);
  return generate(NULL, c, 0);
}

static void listen_at(u16_t port) {
  struct tcp_pcb *l = tcp_new();
  tcp_bind(l, IP_ADDR_ANY, port);
  tcp_accept(tcp_listen_with_backlog(l, 255), accepted);
}

int main(int argc, char **argv) {
  static struct netif card;
  struct ifreq r = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  ip4_addr_t own, mask, none;
  if (argc != 3) return 2;
  strncpy(r.ifr_name, argv[1], IFNAMSIZ - 1);
  fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
  if (fd < 0 || ioctl(fd, TUNSETIFF, &r) < 0 || ioctl(fd, TUNSETOFFLOAD, 0) < 0) return perror("tun"), 1;
  tcpip_init(NULL, NULL);
  ip4addr_aton(argv[2], &own);
  IP4_ADDR(&mask, 255, 255, 255, 0);
  IP4_ADDR(&none, 0, 0, 0, 0);
  LOCK_TCPIP_CORE();
  netif_add(&card, &own, &mask, &none, NULL, begin, ip4_input);
  netif_set_default(&card);
  netif_set_up(&card);
  netif_set_link_up(&card);
  listen_at(7), listen_at(9), listen_at(19);
  UNLOCK_TCPIP_CORE();
  for (;;) {
    static char packet[2048];
    ssize_t n = read(fd, packet, sizeof packet);
    if (n < 0) {
      struct pollfd p = {.fd = fd, .events = POLLIN};
      poll(&p, 1, -1);
      continue;
    }
    LOCK_TCPIP_CORE();
    struct pbuf *p = pbuf_alloc(PBUF_RAW, (u16_t)n, PBUF_POOL);
    if (p && (pbuf_take(p, packet, (u16_t)n) != ERR_OK || card.input(p, &card) != ERR_OK)) pbuf_free(p);
    UNLOCK_TCPIP_CORE();
  }
}
