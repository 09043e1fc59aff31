/* Ends in the handler of a signal, which may have come while memory was being taken. */
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_memalign(size_t, size_t);

static __thread int ends;

static void takes(void) {
    if (ends)
        _exit(3);
}

void *malloc(size_t size) {
    takes();
    return __libc_malloc(size);
}

void *calloc(size_t count, size_t size) {
    takes();
    return __libc_calloc(count, size);
}

int posix_memalign(void **at, size_t alignment, size_t size) {
    takes();
    *at = __libc_memalign(alignment, size);
    return *at ? 0 : ENOMEM;
}

static void handle(int number) {
    (void)number;
    ends = 1;
    exit(0);
}

int main(void) {
    open_first();
    connected();
    must(write(1, "ends\n", 5) == 5, "write");
    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    return 1;
}
