/* Both sides of a connection end with everything open; who calls may part before, or stay. */
static void queue_pair(struct rdma_cm_id *id) {
    struct ibv_qp_init_attr wanted = {
        .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
    };
    must(!rdma_create_qp(id, NULL, &wanted), "rdma_create_qp");
}

static void completes(struct ibv_cq *cq) {
    struct ibv_wc wc;
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        ;
    must(found == 1 && wc.status == IBV_WC_SUCCESS, "ibv_poll_cq");
}

static void serve(struct rdma_cm_id *id, struct sockaddr_in *at) {
    must(!rdma_bind_addr(id, (struct sockaddr *)at) && !rdma_listen(id, 1), "rdma_listen");
    printf("listens\n");
    fflush(stdout);
    struct rdma_cm_id *connected = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    queue_pair(connected);
    struct ibv_recv_wr wr = {0}, *bad;
    must(!ibv_post_recv(connected->qp, &wr, &bad), "ibv_post_recv");
    must(!rdma_accept(connected, &(struct rdma_conn_param){.retry_count = 7}), "rdma_accept");
    next(RDMA_CM_EVENT_ESTABLISHED);
    completes(connected->recv_cq);
    next(RDMA_CM_EVENT_DISCONNECTED);
}

static void call(struct rdma_cm_id *id, struct sockaddr_in *at, const char *then) {
    find(id, at);
    queue_pair(id);
    must(!rdma_connect(id, &(struct rdma_conn_param){.retry_count = 7}), "rdma_connect");
    next(RDMA_CM_EVENT_ESTABLISHED);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    must(!ibv_post_send(id->qp, &wr, &bad), "ibv_post_send");
    completes(id->send_cq);
    if (!strcmp(then, "stays")) {
        printf("stays\n");
        fflush(stdout);
        pause();
    }
    if (!strcmp(then, "parts")) {
        must(!rdma_disconnect(id), "rdma_disconnect");
        rdma_destroy_qp(id);
        must(!rdma_destroy_id(id), "rdma_destroy_id");
    }
}

int main(int count, char **arguments) {
    must(count == 3, "what to do, and an address");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7177)};
    must(inet_pton(AF_INET, arguments[2], &at.sin_addr) == 1, arguments[2]);
    channel = rdma_create_event_channel();
    struct rdma_cm_id *id = identifier();
    alarm(60);
    if (!strcmp(arguments[1], "serves"))
        serve(id, &at);
    else
        call(id, &at, arguments[1]);
    return 0;
}
