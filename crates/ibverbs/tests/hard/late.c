/* Ends as rping does: it destroys the channel while a thread fetches events, and waits for none.
 * One thread has asked before, and another asks only then. */
#include <semaphore.h>

static sem_t done, destroyed;

static void *fetch(void *is_late) {
    struct rdma_cm_event *event;
    if (is_late)
        sem_wait(&destroyed);
    else
        sem_post(&done);
    int fetched = rdma_get_cm_event(channel, &event);
    printf("%s: %d %d\n", is_late ? "late" : "before", fetched, errno);
    exit(1);
}

int main(void) {
    sem_init(&done, 0, 0);
    sem_init(&destroyed, 0, 0);
    channel = rdma_create_event_channel();
    pthread_t before, late;
    must(!pthread_create(&before, NULL, fetch, NULL), "pthread_create");
    must(!pthread_create(&late, NULL, fetch, &late), "pthread_create");
    sem_wait(&done);
    usleep(50000);
    rdma_destroy_event_channel(channel);
    /* What lies there now is another's. */
    void *others[64];
    for (int at = 0; at < 64; at++) {
        others[at] = malloc(8 << at % 6);
        memset(others[at], 0xff, 8 << at % 6);
    }
    sem_post(&destroyed);
    usleep(50000);
    for (int at = 0; at < 64; at++)
        free(others[at]);
    printf("they wait\n");
    return 0;
}
