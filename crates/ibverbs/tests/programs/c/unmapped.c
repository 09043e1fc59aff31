int main(void) {
    open_first();
    struct ibv_mr *there = pages(), *gone = pages();
    must(!munmap(gone->addr, PAGE), "munmap");
    printf("send from memory that has gone: %d\n", write_page(connected(), gone, there));
    int status = write_page(connected(), there, gone);
    int refused = status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR;
    if (refused)
        printf("write to memory that has gone: 10 or 11\n");
    else
        printf("write to memory that has gone: %d\n", status);
    printf("there: %d\n", write_page(connected(), there, there));
    return 0;
}
