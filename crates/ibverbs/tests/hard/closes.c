/* Closes an adapter with objects left, opens it again, and destroys the objects then. */
#include <dirent.h>

static int threads(void) {
    DIR *folder = opendir("/proc/self/task");
    must(folder != NULL, "opendir");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

int main(void) {
    open_at(0);
    struct ibv_context *first = context;
    struct ibv_pd *left_pd = pd;
    struct ibv_cq *left_cq = cq;
    struct ibv_qp *left_qp = make();
    struct ibv_mr *left_mr = pages();
    printf("close %d", ibv_close_device(first));
    printf(", threads %d", threads());
    open_at(0);
    must(!write_page(connected(), pages(), pages()), "write");
    struct ibv_port_attr port;
    printf(", again; of what is left: %d", ibv_destroy_cq(left_cq));
    printf(" %d", ibv_query_port(first, 1, &port));
    printf(" %d", ibv_destroy_qp(left_qp));
    printf(" %d %d", ibv_dereg_mr(left_mr), ibv_destroy_cq(left_cq));
    printf(" %d\n", ibv_dealloc_pd(left_pd));
    must(!write_page(connected(), pages(), pages()), "write");
    return 0;
}
