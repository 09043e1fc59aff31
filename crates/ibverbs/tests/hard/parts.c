/* A child of a process with an identifier connects to it, and ends without a word. */
static void queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr wanted = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    must(!rdma_create_qp(id, NULL, &wanted), "rdma_create_qp");
}

int main(int count, char **arguments) {
    must(count == 2, "an address");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7175)};
    must(inet_pton(AF_INET, arguments[1], &at.sin_addr) == 1, arguments[1]);
    channel = rdma_create_event_channel();
    struct rdma_cm_id *id = identifier();
    int listens[2];
    must(!pipe(listens), "pipe");
    if (!fork()) {
        char byte;
        must(read(listens[0], &byte, 1) == 1, "read");
        channel = rdma_create_event_channel();
        id = identifier();
        find(id, &at);
        queue_pair(id);
        must(!rdma_connect(id, &(struct rdma_conn_param){.retry_count = 7}), "rdma_connect");
        next(RDMA_CM_EVENT_ESTABLISHED);
        return 0;
    }
    must(!rdma_bind_addr(id, (struct sockaddr *)&at) && !rdma_listen(id, 1), "rdma_listen");
    must(write(listens[1], "l", 1) == 1, "write");
    struct rdma_cm_id *connected = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(connected);
    must(!rdma_accept(connected, &(struct rdma_conn_param){.retry_count = 7}), "rdma_accept");
    next(RDMA_CM_EVENT_ESTABLISHED);
    /* Nobody would ever tell. */
    alarm(30);
    next(RDMA_CM_EVENT_DISCONNECTED);
    printf("parted\n");
    return 0;
}
