/* A process ends while a thread of it still waits at a socket: its peer is told. */
static int asking;

static void *reads(void *told) {
    char byte;
    while (rread(asking, &byte, 1) == 1)
        must(write(*(int *)told, &byte, 1) == 1, "write");
    pause();
    return NULL;
}

static int calls(int from) {
    char byte;
    int told[2];
    must(read(from, &there, size) == (int)size && !pipe(told), "pipe");
    asking = socket_made();
    must(!rconnect(asking, (struct sockaddr *)&there, size), "rconnect");
    pthread_t thread;
    must(!pthread_create(&thread, NULL, reads, &told[1]), "thread");
    must(read(told[0], &byte, 1) == 1, "read");
    /* By now it most likely waits for more. */
    usleep(50000);
    return 0;
}

int main(int count, char **arguments) {
    must(count == 2, "an address");
    int to[2];
    must(!pipe(to), "pipe");
    pid_t child = fork();
    if (!child)
        return calls(to[0]);
    listen_at(arguments[1]);
    must(!rlisten(listener, 1), "rlisten");
    must(write(to[1], &there, size) == (int)size, "write");
    int answering = raccept(listener, NULL, NULL);
    must(answering >= 0 && rwrite(answering, "x", 1) == 1, "raccept");
    char byte;
    int status;
    printf("%zd, ", rread(answering, &byte, 1));
    must(waitpid(child, &status, 0) == child, "waitpid");
    printf("%d\n", status);
    return 0;
}
