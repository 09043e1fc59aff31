/* A reliable connection of the first adapter with itself. */
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void must(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static void open_first(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    must(list && list[0], "device");
    context = ibv_open_device(list[0]);
    must(context != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    must(pd && cq, "pd, cq");
}

static struct ibv_qp *make(void) {
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
    must(qp != NULL, "ibv_create_qp");
    return qp;
}

static void join(struct ibv_qp *qp, struct ibv_qp *other) {
    struct ibv_qp_attr to = {
        .qp_state = IBV_QPS_INIT, .port_num = 1, .path_mtu = IBV_MTU_1024,
        .qp_access_flags = IBV_ACCESS_REMOTE_WRITE, .dest_qp_num = other->qp_num,
        .max_dest_rd_atomic = 1, .max_rd_atomic = 1, .min_rnr_timer = 12, .timeout = 14,
        .retry_cnt = 7, .rnr_retry = 7, .ah_attr = {.is_global = 1, .port_num = 1}};
    must(!ibv_query_gid(context, 1, 0, &to.ah_attr.grh.dgid), "ibv_query_gid");
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
         IBV_QP_ACCESS_FLAGS), "init");
    to.qp_state = IBV_QPS_RTR;
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER), "rtr");
    to.qp_state = IBV_QPS_RTS;
    must(!ibv_modify_qp(qp, &to, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
         IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC), "rts");
}

/* One of two queue pairs that are connected with each other. */
static struct ibv_qp *connected(void) {
    struct ibv_qp *qp = make(), *other = make();
    join(qp, other);
    join(other, qp);
    return qp;
}

static struct ibv_mr *pages(void) {
    void *start = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *mr = ibv_reg_mr(pd, start, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    must(start != MAP_FAILED && mr, "ibv_reg_mr");
    return mr;
}

/* Writes a page from one region to another; what became of it, or errno where it was refused. */
static int write_page(struct ibv_qp *qp, struct ibv_mr *from, struct ibv_mr *to) {
    struct ibv_sge sge = {(uintptr_t)from->addr, PAGE, from->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    /* What does not concern a connection may be anything. */
    memset(&wr.wr, 0xa5, sizeof wr.wr);
    wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
    wr.wr.rdma.rkey = to->rkey;
    int refused = ibv_post_send(qp, &wr, &bad);
    if (refused)
        return refused;
    struct ibv_wc wc;
    int found;
    while (!(found = ibv_poll_cq(cq, 1, &wc)))
        ;
    return found < 0 ? found : (int)wc.status;
}
