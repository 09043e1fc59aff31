/* Many pieces in one call, to a socket of the same thread: nobody reads before it is back. */
enum { PIECES = 1024, BYTES = 1 << 20 };

static unsigned char sent[BYTES], came[BYTES];
static struct iovec pieces[PIECES + 1];
static int asking, answering;

/* Pieces of these lengths in turn, some of none, and nowhere. */
static size_t cut(unsigned char *from, size_t of, size_t step) {
    size_t len = 0;
    for (int i = 0; i < PIECES; i++) {
        size_t now = (i * step) % of;
        pieces[i] = (struct iovec){now ? from + len : NULL, now};
        len += now;
    }
    return len;
}

static void comes(size_t len) {
    must(rrecv(answering, came, len, MSG_WAITALL) == (ssize_t)len, "rrecv");
    must(!memcmp(came, sent, len), "what came is what was sent");
}

static const char *why(ssize_t done) {
    must(done == -1, "it fails");
    return errno == EFAULT ? "EFAULT" : errno == EINVAL ? "EINVAL" : strerror(errno);
}

static const char *again(int how) {
    must(!rshutdown(asking, how), "rshutdown");
    must(rconnect(asking, (struct sockaddr *)&there, size) == -1, "rconnect");
    return errno == EISCONN ? "EISCONN" : strerror(errno);
}

int main(int count, char **arguments) {
    must(count == 2, "address");
    /* A call that never comes back would hold the test up. */
    alarm(60);
    listen_at(arguments[1]);
    must(!rlisten(listener, 8), "rlisten");
    asking = socket_made();
    must(!ask(asking), "rconnect");
    answering = answered(asking);
    /* Its peer knows all of its ring once it has seen that it stands, and nobody else looks. */
    struct pollfd stands = {answering, POLLOUT, 0};
    must(rpoll(&stands, 1, -1) == 1 && stands.revents == POLLOUT, "rpoll");
    for (size_t i = 0; i < BYTES; i++)
        sent[i] = (i * 2654435761u) >> 13;

    for (int i = 0; i < PIECES; i++)
        pieces[i] = (struct iovec){sent + i, 1};
    printf("of one byte: %zd\n", rwritev(asking, pieces, PIECES));
    comes(PIECES);

    /* Some tens of thousands of bytes each, so that the rings' ends are anywhere in them. */
    int rounds = 0;
    for (; rounds < 64; rounds++) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = PIECES};
        size_t len = cut(sent, 31 + rounds, 7);
        ssize_t done =
            rounds % 2 ? rsendmsg(asking, &message, 0) : rwritev(asking, pieces, PIECES);
        must(done == (ssize_t)len, "all of it is sent");
        memset(came, 0, len);
        cut(came, 31 + rounds, 7);
        done = rounds % 4 < 2 ? rreadv(answering, pieces, PIECES) : 0;
        must(done >= 0, "rreadv");
        for (ssize_t now; done < (ssize_t)len; done += now)
            must((now = rread(answering, came + done, len - done)) > 0, "rread");
        must(!memcmp(came, sent, len), "what came is what was sent");
    }
    printf("around the ring: %d\n", rounds);

    /* More than both rings hold: it says how many bytes it took, wherever that is in a piece. */
    must(!rfcntl(asking, F_SETFL, O_NONBLOCK), "rfcntl");
    for (int i = 0; i < PIECES; i++)
        pieces[i] = (struct iovec){sent + i * 997, 997};
    ssize_t some = rwritev(asking, pieces, PIECES);
    printf("without waiting: %s", some > 0 && some < PIECES * 997 ? "some" : "not so");
    comes(some);
    printf(", all of it came\n");
    must(!rfcntl(asking, F_SETFL, 0), "rfcntl");

    memset(pieces, 0, sizeof pieces);
    printf("none: %zd", rwritev(asking, pieces, PIECES));
    printf(" %zd", rwritev(asking, NULL, 0));
    pieces[0] = (struct iovec){sent, 5};
    pieces[9].iov_len = 1;
    printf(", nowhere: %s", why(rwritev(asking, pieces, PIECES)));
    printf(", too many: %s", why(rwritev(asking, pieces, PIECES + 1)));
    pieces[9] = (struct iovec){sent, PTRDIFF_MAX - 4};
    printf(", too long: %s\n", why(rwritev(asking, pieces, PIECES)));
    /* None of them was sent. */
    must(rrecv(answering, came, 1, MSG_DONTWAIT) == -1 && errno == EAGAIN, "nothing came");

    printf("connects again: %s", again(SHUT_WR));
    printf(" %s\n", again(SHUT_RDWR));
    return 0;
}
