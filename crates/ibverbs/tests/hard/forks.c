/* Forks before it opens an adapter, and again when it has one. */
static int child_ended_well(pid_t child) {
    int status;
    must(waitpid(child, &status, 0) == child, "waitpid");
    return status == 0;
}

static int writes(void) {
    return write_page(connected(), pages(), pages());
}

int main(void) {
    must(ibv_get_device_list(NULL) != NULL, "ibv_get_device_list");
    pid_t child = fork();
    if (!child) {
        open_at(0);
        return writes();
    }
    printf("before: child %d", child_ended_well(child));
    open_at(0);
    struct ibv_qp *qp = connected();
    struct ibv_mr *from = pages(), *to = pages();
    printf(", parent %d\n", write_page(qp, from, to));
    fflush(stdout);
    /* The child has an adapter of its own, while the parent goes on with its. */
    child = fork();
    if (!child) {
        open_at(1);
        for (int round = 0; round < 50; round++)
            if (writes())
                return 1;
        return 0;
    }
    int failed = 0;
    for (int round = 0; round < 50; round++)
        failed += write_page(qp, from, to) != 0;
    printf("after: child %d, parent's failed %d", child_ended_well(child), failed);
    printf(", behind it %d\n", write_page(qp, from, to));
    fflush(stdout);
    /* A child that only runs another program, as system() does. */
    printf("system: %d", system("exit 0"));
    printf(", behind it %d\n", write_page(qp, from, to));
    return 0;
}
