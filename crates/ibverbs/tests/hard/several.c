/* Several threads wait at one socket while signals come. */
static int stream;
static atomic_int ready, over;

static void handle(int signal) { (void)signal; }

static void *receives(void *unused) {
    (void)unused;
    char byte;
    ready++;
    intptr_t ended = rrecv(stream, &byte, 1, 0) == -1 ? errno : 0;
    over++;
    return (void *)ended;
}

static void *sends(void *unused) {
    (void)unused;
    char byte = 0;
    ready++;
    ssize_t sent;
    /* Behind a late acknowledgement there may be room for more. */
    while ((sent = rsend(stream, &byte, 1, 0)) > 0)
        ;
    intptr_t ended = sent == -1 ? errno : 0;
    over++;
    return (void *)ended;
}

int main(int count, char **arguments) {
    must(count == 2, "address");
    struct sigaction action = {.sa_handler = handle};
    must(!sigaction(SIGUSR1, &action, NULL), "sigaction");
    /* Who hangs fails. */
    alarm(60);
    listen_at(arguments[1]);
    must(!rlisten(listener, 1), "rlisten");
    int asking = socket_made();
    must(!ask(asking), "rconnect");
    stream = answered(asking);
    /* So much that nobody sends any more. */
    static char much[1 << 20];
    while (rsend(stream, much, sizeof much, MSG_DONTWAIT) > 0)
        ;
    pthread_t threads[4];
    for (int at = 0; at < 4; at++)
        must(!pthread_create(&threads[at], NULL, at % 2 ? sends : receives, NULL), "thread");
    while (ready < 4)
        usleep(1000);
    usleep(50000);
    /* The last first: who sleeps for all of them is still there. */
    for (int at = 3; at >= 0; at--) {
        void *ended;
        int before = over;
        while (over == before) {
            pthread_kill(threads[at], SIGUSR1);
            usleep(5000);
        }
        pthread_join(threads[at], &ended);
        printf("%s ", (intptr_t)ended == EINTR ? "interrupted" : strerror((intptr_t)ended));
    }
    printf("\n");
    /* It is nobody's turn. */
    must(rsend(asking, "x", 1, 0) == 1 && rrecv(stream, much, 1, 0) == 1, "behind it");
    return 0;
}
