#include <arpa/inet.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

static struct rdma_cm_id *next(enum rdma_cm_event_type wanted) {
    struct rdma_cm_event *event;
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    struct rdma_cm_id *id = event->id;
    if (event->event != wanted)
        printf("%s, status %d\n", rdma_event_str(event->event), event->status);
    must(event->event == wanted && !rdma_ack_cm_event(event), rdma_event_str(wanted));
    return id;
}

static void with_queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr wanted = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    must(!rdma_create_qp(id, NULL, &wanted), "rdma_create_qp");
}

int main(void) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7471)};
    struct rdma_conn_param wanted = {.retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *id;
    int ready[2];
    char byte = 0;
    inet_pton(AF_INET, "127.0.9.3", &at.sin_addr);
    must(!pipe(ready), "pipe");
    pid_t server = fork();
    if (!server)
        setenv("ROXE_DEVICES", "udp:127.0.9.3", 1);
    alarm(30);
    channel = rdma_create_event_channel();
    must(channel && !rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    if (!server) {
        must(!rdma_bind_addr(id, (struct sockaddr *)&at) && !rdma_listen(id, 1), "rdma_listen");
        must(write(ready[1], &byte, 1) == 1, "write");
        struct rdma_cm_id *client = next(RDMA_CM_EVENT_CONNECT_REQUEST);
        with_queue_pair(client);
        must(!rdma_accept(client, &wanted), "rdma_accept");
        next(RDMA_CM_EVENT_ESTABLISHED);
        return 0;
    }
    must(read(ready[0], &byte, 1) == 1, "read");
    must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&at, 2000), "rdma_resolve_addr");
    next(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
    next(RDMA_CM_EVENT_ROUTE_RESOLVED);
    with_queue_pair(id);
    must(!rdma_connect(id, &wanted), "rdma_connect");
    next(RDMA_CM_EVENT_ESTABLISHED);
    next(RDMA_CM_EVENT_DISCONNECTED);
    int status;
    must(waitpid(server, &status, 0) == server && status == 0, "server");
    printf("disconnected\n");
    return 0;
}
