/* Two processes with one address: a port is one's, and what nobody listens at is refused. */
#include <errno.h>
#include <rdma/rsocket.h>

static struct sockaddr_in at = {.sin_family = AF_INET};

static struct sockaddr *port(int number) {
    at.sin_port = htons(number);
    return (struct sockaddr *)&at;
}

/* What became of a bind: errno, or 0. */
static int bound(enum rdma_port_space space, struct sockaddr *to) {
    struct rdma_cm_id *id;
    must(!rdma_create_id(channel, &id, NULL, space), "rdma_create_id");
    int refused = rdma_bind_addr(id, to) ? errno : 0;
    if (refused)
        must(!rdma_destroy_id(id), "rdma_destroy_id");
    return refused;
}

static int listens(int number) {
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    must(socket >= 0, "rsocket");
    int refused = rbind(socket, port(number), sizeof at) ? errno : 0;
    must(refused || !rlisten(socket, 1), "rlisten");
    return refused ? -refused : socket;
}

static int asks(int number) {
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    must(socket >= 0, "rsocket");
    int refused = rconnect(socket, port(number), sizeof at) ? errno : 0;
    rclose(socket);
    return refused;
}

/* Has ports, and a child that stays when it is killed. */
static void has(int tells) {
    channel = rdma_create_event_channel();
    must(!bound(RDMA_PS_TCP, port(7176)) && !bound(RDMA_PS_UDP, port(7177)), "bind");
    int listener = listens(7178);
    must(listener >= 0, "listens");
    pid_t stays = fork();
    if (!stays) {
        close(tells);
        for (;;)
            pause();
    }
    must(write(tells, &stays, sizeof stays) == sizeof stays, "write");
    must(raccept(listener, NULL, NULL) >= 0, "raccept");
    for (;;)
        pause();
}

int main(int count, char **arguments) {
    must(count == 2, "an address");
    must(inet_pton(AF_INET, arguments[1], &at.sin_addr) == 1, arguments[1]);
    int tells[2];
    must(!pipe(tells), "pipe");
    pid_t other = fork(), stays;
    if (!other)
        has(tells[1]);
    must(read(tells[0], &stays, sizeof stays) == sizeof stays, "read");
    /* Who hangs fails. */
    alarm(60);
    channel = rdma_create_event_channel();
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(7176)};
    int taken = bound(RDMA_PS_TCP, port(7176)) == EADDRINUSE;
    int any_taken = bound(RDMA_PS_TCP, (struct sockaddr *)&any) == EADDRINUSE;
    int stream_taken = listens(7178) == -EADDRINUSE;
    printf("taken: %d %d %d\n", taken, any_taken, stream_taken);
    printf("datagrams: %d", bound(RDMA_PS_UDP, port(7176)));
    printf(" %d\n", bound(RDMA_PS_UDP, port(7177)) == EADDRINUSE);
    printf("nobody:\n");
    port(7179);
    ask(RDMA_PS_TCP, &at);
    ask(RDMA_PS_UDP, &at);
    printf("stream: %d\n", asks(7179) == ECONNREFUSED);
    /* Who has a port and does not listen refuses, too. */
    printf("bound: ");
    port(7176);
    ask(RDMA_PS_TCP, &at);
    printf("the other: %d\n", asks(7178));
    kill(other, SIGKILL);
    must(waitpid(other, NULL, 0) == other, "waitpid");
    int has_child = !kill(stays, 0);
    printf("killed: %d %d\n", bound(RDMA_PS_TCP, port(7176)), listens(7178) < 0);
    must(has_child && !kill(stays, SIGKILL), "its child is gone");
    return 0;
}
