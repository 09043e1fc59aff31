/* Makes everything, uses it, and takes it away, again and again, until it is killed. With an
 * argument it does so once. */
int main(int count, char **arguments) {
    (void)arguments;
    do {
        open_at(0);
        struct ibv_qp *qp = connected();
        struct ibv_mr *from = pages(), *to = pages();
        int failed = 0;
        for (int round = 0; round < 100 && !failed; round++)
            failed = write_page(qp, from, to);
        must(!failed, "write");
        must(!ibv_destroy_qp(qp) && !ibv_dereg_mr(from) && !ibv_close_device(context), "close");
    } while (count < 2);
    printf("all of it\n");
    return 0;
}
