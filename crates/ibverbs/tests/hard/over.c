/* Disconnects what never stood, and what has long been over. */
static struct rdma_conn_param with(struct ibv_qp *qp) {
    return (struct rdma_conn_param){.qp_num = qp->qp_num, .retry_count = 7};
}

/* A call that was accepted: the caller's identifier, and the other one. */
static struct rdma_cm_id *called(struct sockaddr_in *at, struct rdma_cm_id **other) {
    struct rdma_cm_id *id = identifier();
    struct rdma_conn_param param = with(make());
    find(id, at);
    must(!rdma_connect(id, &param), "rdma_connect");
    *other = next(RDMA_CM_EVENT_CONNECT_REQUEST);
    param = with(make());
    must(!rdma_accept(*other, &param), "rdma_accept");
    must(next(RDMA_CM_EVENT_CONNECT_RESPONSE) == id, "whose");
    return id;
}

int main(int count, char **arguments) {
    must(count == 2, "an address");
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7176)};
    must(inet_pton(AF_INET, arguments[1], &at.sin_addr) == 1, arguments[1]);
    channel = rdma_create_event_channel();
    struct rdma_cm_id *listener = identifier(), *accepted;
    must(!rdma_bind_addr(listener, (struct sockaddr *)&at) && !rdma_listen(listener, 1), "listen");
    printf("a listener: %d", rdma_disconnect(listener));
    printf(" %d\n", errno);

    pd = ibv_alloc_pd(listener->verbs);
    cq = ibv_create_cq(listener->verbs, 64, NULL, NULL, 0);
    must(pd && cq, "pd, cq");
    struct rdma_cm_id *caller = called(&at, &accepted);
    printf("before it stands: %d\n", rdma_disconnect(accepted));
    must(!rdma_destroy_id(accepted) && !rdma_destroy_id(caller), "rdma_destroy_id");

    caller = called(&at, &accepted);
    must(!rdma_establish(caller), "rdma_establish");
    must(next(RDMA_CM_EVENT_ESTABLISHED) == accepted, "whose");
    must(!rdma_disconnect(accepted), "rdma_disconnect");
    for (int ended = 0; ended < 2; ended++)
        next(RDMA_CM_EVENT_DISCONNECTED);
    printf("the other was first: %d\n", rdma_disconnect(caller));
    for (int ended = 0; ended < 2; ended++)
        next(RDMA_CM_EVENT_TIMEWAIT_EXIT);
    printf("long over: %d", rdma_disconnect(caller));
    printf(" %d\n", rdma_disconnect(accepted));
    return 0;
}
