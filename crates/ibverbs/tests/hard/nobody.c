/* Looks for a peer that is not there, and says what came of it. */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

int main(int count, char **arguments) {
    must(count == 2, "an address");
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    must(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7174)};
    must(inet_pton(AF_INET, arguments[1], &to.sin_addr) == 1, arguments[1]);
    must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 500), "rdma_resolve_addr");
    struct rdma_cm_event *event;
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    printf("%s %d\n", rdma_event_str(event->event), event->status);
    return 0;
}
