/* Asks for what cannot be had, call by call. */
#include <rdma/rsocket.h>

/* The steps of a queue pair to a state, by one port. */
static void steps(struct ibv_qp *qp, int init_port, int rtr_port, int also_rts) {
    struct ibv_qp_attr to = {
        .qp_state = IBV_QPS_INIT, .port_num = init_port, .path_mtu = IBV_MTU_1024,
        .dest_qp_num = qp->qp_num, .max_dest_rd_atomic = 1, .max_rd_atomic = 1,
        .min_rnr_timer = 12, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7,
        .ah_attr = {.is_global = 1, .port_num = rtr_port}};
    must(!ibv_query_gid(context, 1, 0, &to.ah_attr.grh.dgid), "ibv_query_gid");
    printf(" %d", ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
           IBV_QP_ACCESS_FLAGS));
    to.qp_state = IBV_QPS_RTR;
    printf(" %d", ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
           IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    to.qp_state = IBV_QPS_RTS;
    if (also_rts)
        printf(" %d", ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
               IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

/* Twice, which is told of once. */
static void sends(struct ibv_qp *qp, int elements) {
    struct ibv_sge none[40] = {{0}};
    struct ibv_send_wr wr = {.sg_list = none, .num_sge = elements, .opcode = IBV_WR_SEND}, *bad;
    for (int times = 0; times < 2; times++)
        printf(" %d", ibv_post_send(qp, &wr, &bad));
}

int main(void) {
    open_first();
    printf("init:");
    steps(make(), 2, 1, 0);
    printf("\nrtr:");
    steps(make(), 1, 2, 1);
    printf("\nsends:");
    struct ibv_qp *early = make(), *wide = make(), *wider = make();
    steps(early, 1, 1, 0);
    sends(early, 0);
    steps(wide, 1, 1, 1);
    sends(wide, 2);
    steps(wider, 1, 1, 1);
    sends(wider, 40);
    struct ibv_sge none[2] = {{0}};
    struct ibv_recv_wr wr = {.sg_list = none, .num_sge = 2}, *bad;
    printf("\nreceives: %d", ibv_post_recv(wide, &wr, &bad));

    struct ibv_qp_init_attr pair = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {.max_send_wr = 1 << 30}};
    printf("\nmade: %d", ibv_create_qp(pd, &pair) != NULL);
    pair.cap.max_send_wr = 1;
    pair.cap.max_recv_sge = 1 << 30;
    printf(" %d", ibv_create_qp(pd, &pair) != NULL);
    printf(" %d", ibv_create_cq(context, 1 << 30, NULL, NULL, 0) != NULL);
    printf(" %d", ibv_create_cq(context, 0, NULL, NULL, 0) != NULL);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = 1 << 30, .max_sge = 1}};
    printf(" %d", ibv_create_srq(pd, &shared) != NULL);
    static char page[PAGE];
    printf(" %d\n", ibv_reg_mr(pd, page, PAGE, IBV_ACCESS_REMOTE_WRITE) != NULL);

    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f090909)}};
    channel = rdma_create_event_channel();
    printf("bound: %d", rdma_bind_addr(identifier(), (struct sockaddr *)&at));
    printf(" %d", errno == EADDRNOTAVAIL);
    at.sin_addr.s_addr = htonl(0x7f090908);
    printf(" %d", rbind(rsocket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&at, sizeof at));
    printf(" %d\n", errno == EADDRNOTAVAIL);
    return 0;
}
