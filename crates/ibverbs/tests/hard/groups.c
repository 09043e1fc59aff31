/* A queue pair is in a group once, however often it was attached. */
#include <arpa/inet.h>

int main(void) {
    open_at(0);
    struct ibv_qp_init_attr wanted = {
        .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &wanted);
    must(qp != NULL, "ibv_create_qp");
    union ibv_gid one, other;
    must(inet_pton(AF_INET6, "::ffff:239.1.2.3", &one) == 1, "inet_pton");
    must(inet_pton(AF_INET6, "::ffff:239.1.2.4", &other) == 1, "inet_pton");
    printf("attach %d", ibv_attach_mcast(qp, &one, 0));
    printf(" %d", ibv_attach_mcast(qp, &one, 0));
    printf(" %d", ibv_attach_mcast(qp, &other, 0));
    printf(" none %d", ibv_attach_mcast(qp, NULL, 0));
    printf(", detach none %d", ibv_detach_mcast(qp, NULL, 0));
    printf(" %d", ibv_detach_mcast(qp, &one, 0));
    printf(" %d", ibv_detach_mcast(qp, &one, 0));
    printf(", destroy %d", ibv_destroy_qp(qp));
    printf(", detach %d", ibv_detach_mcast(qp, &other, 0));
    printf(", destroy %d\n", ibv_destroy_qp(qp));
    return 0;
}
