int main(void) {
    open_first();
    struct ibv_qp *qp = connected();
    struct ibv_mr *one = pages(), *other = pages();
    must(!write_page(qp, one, other), "before");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        struct ibv_wc wc;
        int posted = write_page(qp, one, other);
        printf("child: post %d, poll %d", posted, ibv_poll_cq(cq, 1, &wc));
        must(!ibv_destroy_qp(qp) && !ibv_dereg_mr(one) && !ibv_close_device(context), "close");
        printf(", closed\n");
        return 0;
    }
    int status;
    must(waitpid(child, &status, 0) == child && status == 0, "child");
    printf("parent: %d\n", write_page(qp, one, other));
    return 0;
}
