/* A child gives up what it has inherited, and the parent goes on. What may be changed of a region
 * is changed, and no more. */
int main(void) {
    open_at(0);
    struct ibv_td_init_attr wishes = {0};
    struct ibv_td *td = ibv_alloc_td(context, &wishes);
    struct ibv_pd *imported = ibv_import_pd(context, pd->handle);
    struct ibv_mr *mr = pages(), *named = ibv_import_mr(pd, mr->handle);
    must(td && imported && named, "td, pd, mr");
    struct ibv_qp *qp = connected();
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        printf("child: %d", ibv_dealloc_td(td));
        ibv_unimport_mr(named);
        ibv_unimport_pd(imported);
        printf(" %d %d", ibv_destroy_qp(qp), ibv_dereg_mr(mr));
        printf(" %d %d", ibv_destroy_cq(cq), ibv_dealloc_pd(pd));
        printf(" %d\n", ibv_close_device(context));
        return 0;
    }
    must(waitpid(child, NULL, 0) == child, "waitpid");
    printf("parent: %d", write_page(qp, mr, mr));
    printf(" %d\n", ibv_dealloc_td(td));
    ibv_unimport_mr(named);
    ibv_unimport_pd(imported);

    /* Nothing is there, and the rights are not what is changed. */
    void *nothing = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(nothing != MAP_FAILED && !munmap(nothing, PAGE), "mmap");
    int changed = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, nothing, PAGE,
                               IBV_ACCESS_ON_DEMAND);
    printf("to where nothing is: %d %d", changed, errno == EFAULT);
    changed = ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL,
                           nothing, PAGE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
    printf(", on demand: %d\n", changed);
    return 0;
}
