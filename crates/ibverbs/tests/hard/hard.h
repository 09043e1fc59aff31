/* What the programs here have in common, behind `connected.h` of the other tests. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

/* Opens the adapter that is so far from the first. */
static void open_at(int at) {
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    must(list && count > at, "device");
    context = ibv_open_device(list[at]);
    must(context != NULL, "ibv_open_device");
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 1024, NULL, NULL, 0);
    must(pd && cq, "pd, cq");
}
