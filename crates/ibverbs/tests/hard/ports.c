/* Any port at any address is one that is free on all adapters. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

/* The port that it gets; 0 where it gets none. */
static int bound(const char *address, int port) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    must(inet_pton(AF_INET, address, &at.sin_addr) == 1, address);
    struct rdma_cm_id *id;
    must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    int refused = rdma_bind_addr(id, (struct sockaddr *)&at);
    if (!refused)
        must(!rdma_listen(id, 1), "rdma_listen");
    return refused ? 0 : ntohs(rdma_get_src_port(id));
}

int main(int count, char **arguments) {
    must(count == 3, "two addresses");
    channel = rdma_create_event_channel();
    /* The ports that the first adapter gives next are those behind its last one. */
    int last = bound(arguments[1], 0);
    must(last != 0, "rdma_bind_addr");
    for (int behind = 1; behind <= 3; behind++) {
        int port = 32768 + (last - 32768 + behind) % (61000 - 32768);
        must(bound(arguments[2], port) == port, "rdma_bind_addr");
    }
    int any = bound("0.0.0.0", 0);
    printf("any: %d", any != 0);
    printf(", taken: %d\n", bound(arguments[2], any));
    return 0;
}
