/* Channels that are destroyed, and what a careless program still does with them. */
int main(void) {
    struct rdma_cm_event *event;
    channel = rdma_create_event_channel();
    struct rdma_event_channel *other = rdma_create_event_channel();
    must(channel && other, "rdma_create_event_channel");
    must(!fcntl(other->fd, F_SETFL, O_NONBLOCK), "fcntl");
    struct rdma_cm_id *id = identifier();
    rdma_destroy_event_channel(other);
    alarm(60);
    int fetched = rdma_get_cm_event(other, &event);
    printf("who does not wait: %d %d\n", fetched, errno == EBADF);
    int moved = rdma_migrate_id(id, other);
    printf("moved there: %d %d %d\n", moved, errno == EBADF, id->channel == channel);
    rdma_destroy_event_channel(other);
    must(!rdma_destroy_id(id), "rdma_destroy_id");
    for (int at = 0; at < 200; at++)
        rdma_destroy_event_channel(rdma_create_event_channel());
    rdma_destroy_event_channel(channel);
    printf("twice: there\n");
    return 0;
}
