/* Batches of `ibv_wr_start` are posted as a whole, or not at all. */
#define DEPTH 8

static struct ibv_qp *extended(void) {
    struct ibv_qp_init_attr_ex wanted = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1, .pd = pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_BIND_MW,
        .cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp_ex(context, &wanted);
    must(qp != NULL, "ibv_create_qp_ex");
    return qp;
}

/* Writes of a byte each, with these numbers. */
static void writes(struct ibv_qp_ex *ex, struct ibv_mr *mr, int from, int count) {
    for (int at = 0; at < count; at++) {
        ex->wr_id = from + at;
        ex->wr_flags = 0;
        ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)mr->addr);
        ibv_wr_set_sge(ex, mr->lkey, (uintptr_t)mr->addr, 1);
    }
}

int main(void) {
    open_at(0);
    struct ibv_qp *qp = extended(), *other = make();
    join(qp, other);
    join(other, qp);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    struct ibv_mr *mr = pages();
    must(ex != NULL, "ibv_qp_to_qp_ex");

    ibv_wr_start(ex);
    writes(ex, mr, 100, DEPTH + 1);
    printf("one too many: %d\n", ibv_wr_complete(ex));

    /* The last one is no request of this queue pair. */
    ibv_wr_start(ex);
    writes(ex, mr, 200, 2);
    struct ibv_sge two[2] = {{(uintptr_t)mr->addr, 1, mr->lkey}, {(uintptr_t)mr->addr, 1, mr->lkey}};
    ibv_wr_rdma_write(ex, mr->rkey, (uintptr_t)mr->addr);
    ibv_wr_set_sge_list(ex, 2, two);
    printf("a wrong one: %d\n", ibv_wr_complete(ex));

    /* A window has its old key as long as nothing is posted. */
    struct ibv_mr *bindable = ibv_reg_mr(pd, mr->addr, PAGE, IBV_ACCESS_LOCAL_WRITE |
                                         IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_MW_BIND);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    must(bindable && mw, "mr, mw");
    struct ibv_mw_bind_info info = {bindable, (uintptr_t)mr->addr, PAGE, IBV_ACCESS_REMOTE_WRITE};
    uint32_t old = mw->rkey;
    ibv_wr_start(ex);
    ex->wr_id = 300;
    ibv_wr_bind_mw(ex, mw, old + 1, &info);
    writes(ex, mr, 301, DEPTH);
    printf("behind a window: %d", ibv_wr_complete(ex));
    printf(", key %d\n", mw->rkey == old);

    ibv_wr_start(ex);
    writes(ex, mr, 0, DEPTH);
    printf("as many as fit: %d:", ibv_wr_complete(ex));
    struct ibv_wc wc;
    for (int found = 0; found < DEPTH;) {
        int some = ibv_poll_cq(cq, 1, &wc);
        must(some >= 0, "ibv_poll_cq");
        if (some)
            printf(" %d", wc.status ? -1 : (int)wc.wr_id);
        found += some;
    }
    printf(", and %d\n", ibv_poll_cq(cq, 1, &wc));
    return 0;
}
