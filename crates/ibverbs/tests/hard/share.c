/* Two processes with one adapter and one address, each of which writes to the other's memory. */
struct place {
    uint32_t qpn, rkey;
    uint64_t address;
};

static int from_other, to_other;

static void tell(const void *what, size_t len) {
    must(write(to_other, what, len) == (ssize_t)len, "write");
}

static void hear(void *what, size_t len) {
    must(read(from_other, what, len) == (ssize_t)len, "read");
}

static void play(int number) {
    open_at(0);
    struct ibv_qp *qp = make();
    struct ibv_mr *from = pages(), *to = pages();
    memset(from->addr, number, PAGE);
    struct place here = {qp->qp_num, to->rkey, (uintptr_t)to->addr}, there;
    tell(&here, sizeof here);
    hear(&there, sizeof there);
    must(here.qpn != there.qpn, "numbers of queue pairs");
    join(qp, &(struct ibv_qp){.qp_num = there.qpn});
    char ready;
    tell("r", 1);
    hear(&ready, 1);
    struct ibv_mr target = {.addr = (void *)(uintptr_t)there.address, .rkey = there.rkey};
    for (int round = 0; round < 50; round++)
        must(!write_page(qp, from, &target), "write");
    tell("w", 1);
    hear(&ready, 1);
    for (int at = 0; at < PAGE; at++)
        must(((char *)to->addr)[at] == 3 - number, "what was written");
    /* The other may still ask for what was lost. */
    tell("e", 1);
    hear(&ready, 1);
}

int main(void) {
    int one[2], other[2];
    must(!pipe(one) && !pipe(other), "pipe");
    pid_t child = fork();
    from_other = child ? one[0] : other[0];
    to_other = child ? other[1] : one[1];
    play(child ? 1 : 2);
    if (!child)
        return 0;
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "child");
    printf("both\n");
    return 0;
}
