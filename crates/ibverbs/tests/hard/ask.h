/* Asks at an address, and prints what came of it; behind `events.h`. */
static void ask(enum rdma_port_space space, struct sockaddr_in *at) {
    struct rdma_cm_id *id;
    must(!rdma_create_id(channel, &id, NULL, space), "rdma_create_id");
    find(id, at);
    struct ibv_cq *cq = ibv_create_cq(id->verbs, 2, NULL, NULL, 0);
    struct ibv_qp_init_attr attr = {
        .send_cq = cq,
        .recv_cq = cq,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = space == RDMA_PS_UDP ? IBV_QPT_UD : IBV_QPT_RC,
    };
    must(cq && !rdma_create_qp(id, id->pd, &attr), "rdma_create_qp");
    must(!rdma_connect(id, &(struct rdma_conn_param){.retry_count = 7}), "rdma_connect");
    struct rdma_cm_event *event;
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    printf("%s %d\n", rdma_event_str(event->event), event->status);
    must(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
    rdma_destroy_qp(id);
    must(!rdma_destroy_id(id), "rdma_destroy_id");
}
