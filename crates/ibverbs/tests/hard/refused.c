/* Asks at an adapter where nobody listens: for a connection, for datagrams, for a stream. */
#include <errno.h>
#include <rdma/rsocket.h>

int main(int count, char **arguments) {
    must(count == 2, "an address");
    channel = rdma_create_event_channel();
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7174)};
    must(channel && inet_pton(AF_INET, arguments[1], &to.sin_addr) == 1, arguments[1]);
    /* The second time is told of no more than the first. */
    ask(RDMA_PS_TCP, &to);
    ask(RDMA_PS_TCP, &to);
    ask(RDMA_PS_UDP, &to);
    to.sin_port = htons(7175);
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    int connected = rconnect(socket, (struct sockaddr *)&to, sizeof to);
    printf("stream %d %d\n", connected, errno == ECONNREFUSED);
    return 0;
}
