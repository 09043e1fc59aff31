/* Asks at an adapter where nobody listens: for a connection, for datagrams, for a stream. */
#include <errno.h>
#include <rdma/rsocket.h>

static void ask(enum rdma_port_space space, struct sockaddr_in to) {
    struct rdma_cm_id *id;
    must(!rdma_create_id(channel, &id, NULL, space), "rdma_create_id");
    find(id, &to);
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 2, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
    };
    must(cq && !rdma_create_qp(id, id->pd, &attr), "rdma_create_qp");
    struct rdma_conn_param param = {.retry_count = 7};
    must(!rdma_connect(id, &param), "rdma_connect");
    struct rdma_cm_event *event;
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    printf("%s %d\n", rdma_event_str(event->event), event->status);
    must(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
    rdma_destroy_qp(id);
    must(!rdma_destroy_id(id), "rdma_destroy_id");
}

int main(int count, char **arguments) {
    must(count == 2, "an address");
    channel = rdma_create_event_channel();
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7174)};
    must(channel && inet_pton(AF_INET, arguments[1], &to.sin_addr) == 1, arguments[1]);
    /* The second time is told of no more than the first. */
    ask(RDMA_PS_TCP, to);
    ask(RDMA_PS_TCP, to);
    ask(RDMA_PS_UDP, to);
    to.sin_port = htons(7175);
    int socket = rsocket(AF_INET, SOCK_STREAM, 0);
    int connected = rconnect(socket, (struct sockaddr *)&to, sizeof to);
    printf("stream %d %d\n", connected, errno == ECONNREFUSED);
    return 0;
}
