/* Eight threads, each with a queue pair of its own, post to one completion queue, and all poll it. */
#define THREADS 8
#define EACH 2000

static atomic_int done[THREADS], failed;

static void poll_some(void) {
    struct ibv_wc wc[4];
    int found = ibv_poll_cq(cq, 4, wc);
    must(found >= 0, "ibv_poll_cq");
    for (int at = 0; at < found; at++) {
        if (wc[at].status != IBV_WC_SUCCESS || wc[at].wr_id >= THREADS)
            failed++;
        else
            done[wc[at].wr_id]++;
    }
}

static void *post(void *start) {
    int number = (int)(intptr_t)start;
    struct ibv_qp *qp = connected();
    struct ibv_mr *from = pages(), *to = pages();
    memset(from->addr, number + 1, PAGE);
    struct ibv_sge sge = {(uintptr_t)from->addr, 64, from->lkey};
    struct ibv_send_wr wr = {.wr_id = number, .sg_list = &sge, .num_sge = 1,
        .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.rkey = to->rkey;
    for (int posted = 0; posted < EACH;) {
        wr.wr.rdma.remote_addr = (uintptr_t)to->addr + posted % 64 * 64;
        /* As many as the queue takes; others may poll what they complete. */
        if (posted - done[number] < 8 && !ibv_post_send(qp, &wr, &bad))
            posted++;
        else
            poll_some();
    }
    while (done[number] < EACH && !failed)
        poll_some();
    for (int at = 0; at < PAGE; at++)
        must(((char *)to->addr)[at] == number + 1, "what was written");
    return NULL;
}

int main(void) {
    open_at(0);
    pthread_t threads[THREADS];
    for (int at = 0; at < THREADS; at++)
        must(!pthread_create(&threads[at], NULL, post, (void *)(intptr_t)at), "pthread_create");
    for (int at = 0; at < THREADS; at++)
        pthread_join(threads[at], NULL);
    poll_some();
    int all = 0;
    for (int at = 0; at < THREADS; at++)
        all += done[at];
    printf("done %d, failed %d\n", all, failed);
    return 0;
}
