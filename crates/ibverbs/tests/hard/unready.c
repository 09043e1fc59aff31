/* Sends where nothing is posted, and posts it only once it was told of that. */

static int completes(struct ibv_wc *wc) {
    int found;
    while (!(found = ibv_poll_cq(cq, 1, wc)))
        ;
    return found < 0 ? found : (int)wc->status;
}

int main(void) {
    open_first();
    struct ibv_qp *sends = make(), *takes = make();
    join(sends, takes);
    join(takes, sends);
    printf("0x%x 0x%x\n", sends->qp_num, takes->qp_num);
    fflush(stdout);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND}, *bad;
    must(!ibv_post_send(sends, &wr, &bad), "ibv_post_send");
    /* The end of what it reads. */
    must(getchar() == EOF, "getchar");
    struct ibv_recv_wr receive = {.num_sge = 0}, *bad_receive;
    must(!ibv_post_recv(takes, &receive, &bad_receive), "ibv_post_recv");
    struct ibv_wc wc;
    printf("sent: %d", completes(&wc));
    printf(" %d\n", completes(&wc));
    return 0;
}
