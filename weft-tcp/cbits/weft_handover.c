/* A descriptor goes from one process to another over a socket of the Unix domain, with one byte. Each function answers a
 * number of at least 0, or a negated errno, and does not block. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

union control {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int))];
};

int weft_descriptor_send(int socket, unsigned char byte, int fd)
{
    union control c;
    struct iovec v = {&byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    memset(&c, 0, sizeof c);
    c.header.cmsg_level = SOL_SOCKET;
    c.header.cmsg_type = SCM_RIGHTS;
    c.header.cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(&c.header), &fd, sizeof fd);
    long n = sendmsg(socket, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    return n < 0 ? -errno : n;
}

/* How many bytes were received: 1, or 0 at the end. The descriptor is -1 if none came with it. */
int weft_descriptor_receive(int socket, unsigned char *byte, int *fd)
{
    union control c;
    struct iovec v = {byte, 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
    *fd = -1;
    long n = recvmsg(socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0) return -errno;
    struct cmsghdr *h = CMSG_FIRSTHDR(&m);
    if (h && h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS && h->cmsg_len == CMSG_LEN(sizeof *fd))
        memcpy(fd, CMSG_DATA(h), sizeof *fd);
    return n;
}
