/* A child opens what its parent has open. */

int main(void) {
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    must(list && count == 1 && ibv_open_device(list[0]), "ibv_open_device");
    pid_t child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        /* The second time it says the same. */
        int opened = ibv_open_device(list[0]) != NULL;
        opened += ibv_open_device(list[0]) != NULL;
        printf("%d", opened);
        fflush(stdout);
        _exit(0);
    }
    must(waitpid(child, NULL, 0) == child, "waitpid");
    printf(" in the child\n");
    return 0;
}
