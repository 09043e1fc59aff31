/* Eight threads post to one queue pair, and all poll its completion queue. */
#define THREADS 8
#define EACH 500

static struct ibv_qp *qp;
static struct ibv_mr *from, *to;
static atomic_int done, failed;

static void poll_some(void) {
    struct ibv_wc wc;
    int found = ibv_poll_cq(cq, 1, &wc);
    must(found >= 0, "ibv_poll_cq");
    if (found)
        wc.status == IBV_WC_SUCCESS ? done++ : failed++;
}

static void *post(void *start) {
    struct ibv_sge sge = {(uintptr_t)from->addr, 64, from->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    (void)start;
    wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
    wr.wr.rdma.rkey = to->rkey;
    for (int posted = 0; posted < EACH;) {
        int refused = ibv_post_send(qp, &wr, &bad);
        must(!refused || refused == ENOMEM, "ibv_post_send");
        if (!refused)
            posted++;
        poll_some();
    }
    return NULL;
}

int main(void) {
    open_at(0);
    qp = connected();
    from = pages();
    to = pages();
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        must(!pthread_create(&threads[at], NULL, post, NULL), "pthread_create");
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    while (done + failed < THREADS * EACH)
        poll_some();
    printf("done %d, failed %d\n", done, failed);
    return 0;
}
