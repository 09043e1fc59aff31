/* Names its peers without a GID, as ibv_rc_pingpong does without -g, or not at all, or itself by an
 * index that is empty. */
#include <poll.h>
#include <rdma/rsocket.h>

int main(void) {
    open_at(0);
    struct ibv_qp *qp = make();
    struct ibv_qp_attr to = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024, .dest_qp_num = 1,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = {.port_num = 1}};
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
         IBV_QP_ACCESS_FLAGS), "init");
    to.qp_state = IBV_QPS_RTR;
    printf("rtr: %d", ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
           IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
    printf(", ah: %d\n", ibv_create_ah(pd, &to.ah_attr) != NULL);
    struct ibv_qp *alone = make();
    to.qp_state = IBV_QPS_INIT;
    must(!ibv_modify_qp(alone, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
         IBV_QP_ACCESS_FLAGS), "init");
    to.qp_state = IBV_QPS_RTR;
    must(ibv_modify_qp(alone, &to, IBV_QP_STATE | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == EINVAL, "no AV");
    struct ibv_qp *lost = make();
    to.qp_state = IBV_QPS_INIT;
    must(!ibv_modify_qp(lost, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
         IBV_QP_ACCESS_FLAGS), "init");
    to.qp_state = IBV_QPS_RTR;
    to.ah_attr.is_global = 1;
    to.ah_attr.grh.sgid_index = 7;
    to.ah_attr.grh.dgid.raw[10] = to.ah_attr.grh.dgid.raw[11] = 0xff;
    must(ibv_modify_qp(lost, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == EINVAL, "index 7");
    errno = 0;
    printf("socket: %d", rsocket(AF_INET, SOCK_DGRAM, 0));
    printf(" %d", errno == EOPNOTSUPP);
    must(rpoll(NULL, 3, 0) == -1, "rpoll");
    printf(", rpoll: %d", errno == EFAULT);
    must(rpoll(&(struct pollfd){.fd = -1}, -1, 0) == -1, "rpoll");
    printf(" %d\n", errno == EINVAL);
    struct ibv_qp_init_attr made;
    struct ibv_qp_attr known;
    must(!ibv_query_qp(qp, &known, IBV_QP_CAP, &made), "ibv_query_qp");
    printf("inline: %d\n", made.cap.max_inline_data >= 64 && known.cap.max_inline_data >= 64);
    return 0;
}
