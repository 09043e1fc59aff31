/* Destroys what it has events of, and gives those back only once it was told of them. */

static struct rdma_cm_event *of_identifier;
static struct ibv_async_event of_pair;

static void *destroys_identifier(void *id) {
    must(!rdma_destroy_id(id), "rdma_destroy_id");
    return NULL;
}

static void *destroys_pair(void *qp) {
    must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
    return NULL;
}

static void *destroys_queue(void *queue) {
    must(!ibv_destroy_cq(queue), "ibv_destroy_cq");
    return NULL;
}

/* Two events of completions of a queue that nobody uses any more. */
static struct ibv_cq *told_twice(void) {
    struct ibv_comp_channel *tells = ibv_create_comp_channel(context);
    struct ibv_cq *told = ibv_create_cq(context, 8, NULL, tells, 0), *from;
    must(tells && told, "ibv_create_cq");
    struct ibv_cq *other = cq;
    cq = told;
    struct ibv_qp *qp = make();
    cq = other;
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
         IBV_QP_ACCESS_FLAGS), "init");
    to.qp_state = IBV_QPS_ERR;
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE), "error");
    void *context_of_it;
    for (int times = 0; times < 2; times++) {
        struct ibv_recv_wr wr = {.num_sge = 0}, *bad;
        must(!ibv_req_notify_cq(told, 0), "ibv_req_notify_cq");
        must(!ibv_post_recv(qp, &wr, &bad), "ibv_post_recv");
        must(!ibv_get_cq_event(tells, &from, &context_of_it), "ibv_get_cq_event");
    }
    must(!ibv_destroy_qp(qp), "ibv_destroy_qp");
    return told;
}

/* A queue pair with a shared receive queue that ends. */
static struct ibv_qp *ended(void) {
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1, .max_sge = 1}};
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .srq = ibv_create_srq(pd, &shared), .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_send_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    must(qp && !ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
         IBV_QP_ACCESS_FLAGS), "init");
    to.qp_state = IBV_QPS_ERR;
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE), "error");
    must(!ibv_get_async_event(context, &of_pair), "ibv_get_async_event");
    must(of_pair.event_type == IBV_EVENT_QP_LAST_WQE_REACHED, "which event");
    return qp;
}

int main(int count, char **arguments) {
    must(count == 2, "an address");
    open_first();
    channel = rdma_create_event_channel();
    struct rdma_cm_id *id = identifier();
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(7174)};
    must(inet_pton(AF_INET, arguments[1], &to.sin_addr) == 1, arguments[1]);
    must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 5000), "rdma_resolve_addr");
    must(!rdma_get_cm_event(channel, &of_identifier), "rdma_get_cm_event");
    struct ibv_cq *queue = told_twice();
    struct ibv_qp *qp = ended();

    pthread_t threads[3];
    must(!pthread_create(&threads[0], NULL, destroys_identifier, id), "pthread_create");
    must(!pthread_create(&threads[1], NULL, destroys_pair, qp), "pthread_create");
    must(!pthread_create(&threads[2], NULL, destroys_queue, queue), "pthread_create");
    /* The end of what it reads. */
    must(getchar() == EOF, "getchar");
    must(!rdma_ack_cm_event(of_identifier), "rdma_ack_cm_event");
    ibv_ack_async_event(&of_pair);
    ibv_ack_cq_events(queue, 2);
    for (int at = 0; at < 3; at++)
        must(!pthread_join(threads[at], NULL), "pthread_join");
    printf("destroyed\n");
    return 0;
}
