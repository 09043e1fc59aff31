/* Sockets with the largest buffers there are, and without room for them. */
int main(int count, char **arguments) {
    must(count == 2, "address");
    int most = INT32_MAX, found;
    socklen_t len = sizeof found;
    listen_at(arguments[1]);
    must(!rsetsockopt(listener, SOL_SOCKET, SO_RCVBUF, &most, sizeof most), "SO_RCVBUF");
    must(!rsetsockopt(listener, SOL_SOCKET, SO_SNDBUF, &most, sizeof most), "SO_SNDBUF");
    must(!rgetsockopt(listener, SOL_SOCKET, SO_RCVBUF, &found, &len), "SO_RCVBUF");
    printf("wanted: %d", found);
    must(!rlisten(listener, 8), "rlisten");
    int asking = socket_made();
    must(!ask(asking), "rconnect");
    int answering = answered(asking);
    must(!rgetsockopt(answering, SOL_SOCKET, SO_RCVBUF, &found, &len), "SO_RCVBUF");
    struct rusage used;
    must(!getrusage(RUSAGE_SELF, &used), "getrusage");
    printf(", has: %d, used: %d", found, used.ru_maxrss >= found / 1024);
    /* Enough for the program, not for another buffer. */
    unsigned long pages;
    FILE *statm = fopen("/proc/self/statm", "r");
    must(statm && fscanf(statm, "%lu", &pages) == 1, "statm");
    rlim_t bytes = (rlim_t)pages * sysconf(_SC_PAGESIZE) + (64 << 20);
    struct rlimit room = {bytes, bytes};
    must(!setrlimit(RLIMIT_AS, &room), "setrlimit");
    int other = socket_made();
    must(!rsetsockopt(other, SOL_SOCKET, SO_RCVBUF, &most, sizeof most), "SO_RCVBUF");
    int asked = ask(other);
    printf(", without room: %s\n", asked == ENOMEM ? "ENOMEM" : strerror(asked));
    return 0;
}
