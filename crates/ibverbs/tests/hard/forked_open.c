/* A child opens what its parent has open, and another, which it closes. */

int main(void) {
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    must(list && count == 2 && ibv_open_device(list[0]), "ibv_open_device");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        /* The second time it says the same. */
        int opened = ibv_open_device(list[0]) != NULL;
        opened += ibv_open_device(list[0]) != NULL;
        for (int time = 0; time < 3; time++) {
            struct ibv_context *own = ibv_open_device(list[1]);
            must(own && !ibv_close_device(own), "its own");
        }
        printf("%d", opened);
        fflush(stdout);
        _exit(0);
    }
    int status;
    must(waitpid(child, &status, 0) == child && !status, "waitpid");
    printf(" in the child\n");
    return 0;
}
