/* Waits for events that never come, while signals do. */
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *connections;
static struct ibv_comp_channel *channel;
static pthread_t waiting;
static atomic_int handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

static void install(int flags) {
    struct sigaction action = {.sa_handler = handle, .sa_flags = flags};
    must(!sigaction(SIGUSR1, &action, NULL), "sigaction");
}

/* How a wait ends that is interrupted for as long as it lasts. */
static atomic_int over;
static int kind;

static void *wait_for_event(void *nothing) {
    (void)nothing;
    struct ibv_cq *found;
    void *of;
    struct ibv_async_event event;
    struct rdma_cm_event *happened;
    int result = kind == 0   ? ibv_get_cq_event(channel, &found, &of)
                 : kind == 1 ? ibv_get_async_event(context, &event)
                             : rdma_get_cm_event(connections, &happened);
    int ended = result ? errno : 0;
    over = 1;
    return (void *)(intptr_t)ended;
}

static void tick(void) {
    struct timespec time = {0, 5000000};
    nanosleep(&time, NULL);
}

static int interrupted(void) {
    void *ended;
    over = 0;
    must(!pthread_create(&waiting, NULL, wait_for_event, NULL), "pthread_create");
    while (!over) {
        pthread_kill(waiting, SIGUSR1);
        tick();
    }
    pthread_join(waiting, &ended);
    return (int)(intptr_t)ended;
}

int main(void) {
    open_at(0);
    channel = ibv_create_comp_channel(context);
    struct ibv_cq *told = ibv_create_cq(context, 16, NULL, channel, 0);
    connections = rdma_create_event_channel();
    must(channel && told && connections, "channel");
    install(0);
    printf("cq event: %d\n", interrupted() == EINTR);
    kind = 1;
    printf("async event: %d\n", interrupted() == EINTR);
    kind = 2;
    printf("cm event: %d\n", interrupted() == EINTR);
    /* Behind this handler calls go on: only what is waited for ends the wait. */
    kind = 0;
    install(SA_RESTART);
    struct ibv_qp_init_attr wanted = {
        .send_cq = told, .recv_cq = told, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
        .cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1}};
    struct ibv_qp *qp = ibv_create_qp(pd, &wanted), *other = make();
    must(qp && !ibv_req_notify_cq(told, 0), "armed");
    join(qp, other);
    join(other, qp);
    struct ibv_mr *from = pages(), *to = pages();
    over = handled = 0;
    must(!pthread_create(&waiting, NULL, wait_for_event, NULL), "pthread_create");
    for (int round = 0; round < 20; round++) {
        pthread_kill(waiting, SIGUSR1);
        tick();
    }
    printf("handled %d, over %d\n", handled > 0, over);
    struct ibv_sge sge = {(uintptr_t)from->addr, 64, from->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
    wr.wr.rdma.remote_addr = (uintptr_t)to->addr;
    wr.wr.rdma.rkey = to->rkey;
    must(!ibv_post_send(qp, &wr, &bad), "ibv_post_send");
    void *ended;
    pthread_join(waiting, &ended);
    printf("came: %d\n", (int)(intptr_t)ended);
    return 0;
}
