/* What programs of sockets have in common, behind `hard.h`. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <rdma/rsocket.h>
#include <sys/resource.h>

static int listener;
static struct sockaddr_in there;
static socklen_t size = sizeof there;

static int socket_made(void) {
    int made = rsocket(AF_INET, SOCK_STREAM, 0);
    must(made >= 0, "rsocket");
    return made;
}

static void listen_at(const char *address) {
    listener = socket_made();
    there.sin_family = AF_INET;
    must(inet_pton(AF_INET, address, &there.sin_addr) == 1, address);
    must(!rbind(listener, (struct sockaddr *)&there, size), "rbind");
    must(!rgetsockname(listener, (struct sockaddr *)&there, &size), "rgetsockname");
}

/* Begins to connect: 0, or why it does not. */
static int ask(int asking) {
    must(!rfcntl(asking, F_SETFL, O_NONBLOCK), "rfcntl");
    int asked = rconnect(asking, (struct sockaddr *)&there, size);
    return asked && errno != EINPROGRESS ? errno : 0;
}

/* Of a connection to itself: who asked has begun to. */
static int answered(int asking) {
    struct pollfd fds[] = {{listener, POLLIN, 0}, {asking, POLLOUT, 0}};
    while (!fds[0].revents)
        must(rpoll(fds, 2, -1) > 0, "rpoll");
    int answering = raccept(listener, NULL, NULL);
    must(answering >= 0, "raccept");
    while (!(fds[1].revents & POLLOUT))
        must(rpoll(fds + 1, 1, -1) > 0, "rpoll");
    must(!rfcntl(asking, F_SETFL, 0), "rfcntl");
    return answering;
}
