/* What programs of the connection manager have in common, behind `hard.h`. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <rdma/rdma_cma.h>

static struct rdma_event_channel *channel;

static struct rdma_cm_id *identifier(void) {
    struct rdma_cm_id *id;
    must(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
    return id;
}

static struct rdma_cm_id *next(enum rdma_cm_event_type wanted) {
    struct rdma_cm_event *event;
    must(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
    must(event->event == wanted, rdma_event_str(event->event));
    struct rdma_cm_id *id = event->id;
    must(!rdma_ack_cm_event(event), "rdma_ack_cm_event");
    return id;
}

/* The way to who is asked. */
static void find(struct rdma_cm_id *id, struct sockaddr_in *at) {
    must(!rdma_resolve_addr(id, NULL, (struct sockaddr *)at, 5000), "rdma_resolve_addr");
    next(RDMA_CM_EVENT_ADDR_RESOLVED);
    must(!rdma_resolve_route(id, 5000), "rdma_resolve_route");
    next(RDMA_CM_EVENT_ROUTE_RESOLVED);
}
