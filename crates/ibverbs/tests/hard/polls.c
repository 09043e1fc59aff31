/* Waits for sockets over RDMA, at the address that it is given, and for pipes among them. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>

static struct sockaddr_in address = {.sin_family = AF_INET};

static int listening(void) {
    int fd = rsocket(AF_INET, SOCK_STREAM, 0);
    address.sin_port = 0;
    must(!rbind(fd, (struct sockaddr *)&address, sizeof address), "rbind");
    must(!rlisten(fd, 1), "rlisten");
    must(!rgetsockname(fd, (struct sockaddr *)&address, &(socklen_t){sizeof address}), "its name");
    return fd;
}

static struct pollfd reads(int fd) {
    return (struct pollfd){.fd = fd, .events = POLLIN, .revents = POLLERR};
}

static void told(const char *of, struct pollfd *fds, int count, int timeout) {
    printf("%s: %d of", of, rpoll(fds, count, timeout));
    for (int i = 0; i < count; i++)
        printf(" %d", fds[i].revents == POLLIN ? 1 : -fds[i].revents);
    puts("");
}

int main(int argc, char **argv) {
    int full[2], empty[2];
    must(argc == 2 && inet_pton(AF_INET, argv[1], &address.sin_addr) == 1, "address");
    must(!pipe(full) && !pipe(empty) && write(full[1], "x", 1) == 1, "pipe");
    struct pollfd one = reads(listening()), other = reads(listening());
    struct pollfd ready = reads(full[0]), silent = reads(empty[0]);
    told("pipes", (struct pollfd[]){silent, ready}, 2, -1);
    told("sockets", (struct pollfd[]){one, other}, 2, 0);
    told("both", (struct pollfd[]){silent, one, ready, reads(-1), other, ready}, 6, -1);
    int asks = rsocket(AF_INET, SOCK_STREAM, 0);
    must(!rfcntl(asks, F_SETFL, O_NONBLOCK), "rfcntl");
    must(rconnect(asks, (struct sockaddr *)&address, sizeof address) == -1, "rconnect");
    must(errno == EINPROGRESS, "rconnect");
    told("in a while", (struct pollfd[]){silent, one, other}, 3, -1);
    told("sockets", (struct pollfd[]){one, other}, 2, -1);
    told("both", (struct pollfd[]){other, ready, one, silent}, 4, -1);
    return 0;
}
