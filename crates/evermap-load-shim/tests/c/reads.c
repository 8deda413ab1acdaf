/* Reads a file, unaware of preloaded libraries: `reads ACTION FILE`. */
#include "check.h"

#define MIB ((size_t)1 << 20)

static void read_whole(void) {
    int fd = open_file(O_RDONLY);
    unsigned char *buffer = malloc(length + MIB);
    CHECK(buffer != NULL);
    errno = 0;
    CHECK(read(fd, buffer, length + MIB) == (ssize_t)length);
    CHECK(errno == 0);
    check_bytes(buffer, 0, length);
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)length);
    CHECK(read(fd, buffer, length) == 0);
    CHECK(lseek(fd, -(off_t)(2 * MIB), SEEK_END) == (off_t)(length - 2 * MIB));
    CHECK(read(fd, buffer, length) == (ssize_t)(2 * MIB));
    check_bytes(buffer, length - 2 * MIB, 2 * MIB);
    CHECK(lseek(fd, (off_t)(length + 5), SEEK_SET) > 0);
    CHECK(read(fd, buffer, length) == 0);
    CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)(length + 5));
}

static void read_odd(void) {
    int fd = open_file(O_RDONLY);
    size_t bytes = 5 * MIB + 7;
    unsigned char *buffer = malloc(bytes + 3);
    CHECK(lseek(fd, 5, SEEK_SET) == 5);
    for (size_t at = 5; at < length;) {
        ssize_t came = read(fd, buffer + 3, bytes);
        CHECK(came > 0);
        check_bytes(buffer + 3, at, (size_t)came);
        at += (size_t)came;
        CHECK(lseek(fd, 0, SEEK_CUR) == (off_t)at);
    }
}

static void pread_anywhere(void) {
    int fd = open_file(O_RDONLY);
    unsigned char *buffer = malloc(length);
    CHECK(pread(fd, buffer, length, 1) == (ssize_t)(length - 1));
    check_bytes(buffer, 1, length - 1);
    CHECK(pread(fd, buffer, length, (off_t)length) == 0);
    CHECK(pread(fd, buffer, length, (off_t)length + 1000) == 0);
    CHECK(pread(fd, buffer, length, -1) == -1 && errno == EINVAL);
    CHECK(lseek(fd, 0, SEEK_CUR) == 0);
}

static void read_vectors(void) {
    int fd = open_file(O_RDONLY);
    unsigned char *one = malloc(3 * MIB + 1), *two = malloc(length);
    struct iovec vectors[] = {{one, 3 * MIB + 1}, {NULL, 0}, {two, length}};
    CHECK(readv(fd, vectors, 3) == (ssize_t)length);
    check_bytes(one, 0, 3 * MIB + 1);
    check_bytes(two, 3 * MIB + 1, length - 3 * MIB - 1);
    CHECK(readv(fd, vectors, 3) == 0);
    volatile int wrong = -1;
    CHECK(readv(fd, vectors, wrong) == -1 && errno == EINVAL);
}

static void bad_reads(void) {
    unsigned char *buffer = malloc(4 * MIB);
    CHECK(read(-1, buffer, 4 * MIB) == -1 && errno == EBADF);
    CHECK(read(1000, buffer, 4 * MIB) == -1 && errno == EBADF);
    int fd = open_file(O_RDONLY);
    void *volatile nowhere = (void *)16;
    CHECK(read(fd, nowhere, 4 * MIB) == -1 && errno == EFAULT);
    CHECK(lseek(fd, 0, SEEK_CUR) == 0);
    /* Half a buffer. */
    unsigned char *half =
        mmap(NULL, 8 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(munmap(half + 4 * MIB, 4 * MIB) == 0);
    ssize_t came = read(fd, half, 8 * MIB);
    CHECK(came > 0 && came <= (ssize_t)(4 * MIB));
    check_bytes(half, 0, (size_t)came);
    CHECK(lseek(fd, 0, SEEK_CUR) == came);
    int only_written = open_file(O_WRONLY);
    CHECK(read(only_written, buffer, 4 * MIB) == -1 && errno == EBADF);
    int directory = open("/", O_RDONLY);
    CHECK(read(directory, buffer, 4 * MIB) == -1 && errno == EISDIR);
}

static int shared_fd;

static void *one_of_many(void *total) {
    unsigned char *buffer = malloc(3 * MIB);
    ssize_t came;
    while ((came = read(shared_fd, buffer, 3 * MIB)) > 0) {
        size_t sum = 0;
        for (ssize_t at = 0; at < came; at++)
            sum += buffer[at];
        __atomic_fetch_add((size_t *)total, sum, __ATOMIC_RELAXED);
    }
    CHECK(came == 0);
    return NULL;
}

/* Every byte is read by exactly one thread. */
static void by_threads(void) {
    size_t total = 0, all = 0;
    pthread_t threads[4];
    shared_fd = open_file(O_RDONLY);
    for (int at = 0; at < 4; at++)
        CHECK(pthread_create(&threads[at], NULL, one_of_many, &total) == 0);
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
    for (size_t at = 0; at < length; at++)
        all += expected(at);
    CHECK(total == all);
}

static int ends[2];

static void *waits(void *buffer) {
    CHECK(read(ends[0], buffer, 4 * MIB) >= 0);
    return NULL;
}

static void pipes_and_cancels(void) {
    unsigned char *buffer = malloc(4 * MIB);
    CHECK(pipe(ends) == 0);
    CHECK(write(ends[1], "abc", 3) == 3);
    CHECK(read(ends[0], buffer, 4 * MIB) == 3 && memcmp(buffer, "abc", 3) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, waits, buffer) == 0);
    usleep(50000);
    void *result;
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0);
    CHECK(result == PTHREAD_CANCELED);
}

static void stream_whole(void) {
    FILE *stream = fopen(path, "r");
    close(open_file(O_RDONLY));
    unsigned char *buffer = malloc(length + 2 * MIB);
    CHECK(fread(buffer, 1, length, stream) == length);
    check_bytes(buffer, 0, length);
    CHECK(!feof(stream) && !ferror(stream) && ftello(stream) == (off_t)length);
    CHECK(fread(buffer, 1, 4 * MIB, stream) == 0);
    CHECK(feof(stream) && !ferror(stream));
    rewind(stream);
    CHECK(!feof(stream));
    CHECK(fread(buffer, 1, length + 2 * MIB, stream) == length);
    CHECK(feof(stream) && fgetc(stream) == EOF);
    check_bytes(buffer, 0, length);
    CHECK(fclose(stream) == 0);
}

static void stream_odd(void) {
    FILE *stream = fopen(path, "r");
    close(open_file(O_RDONLY));
    unsigned char *buffer = malloc(length + 64);
    CHECK(fgetc(stream) == expected(0) && fgetc(stream) == expected(1));
    /* A pushed-back byte that differs from the file's. */
    CHECK(ungetc(99, stream) == 99);
    size_t each = 7, count = (6 * MIB) / each;
    CHECK(fread(buffer, each, count, stream) == count);
    CHECK(buffer[0] == 99);
    check_bytes(buffer + 1, 2, each * count - 1);
    size_t at = 2 + each * count - 1;
    CHECK(ftello(stream) == (off_t)at);
    CHECK(fgetc(stream) == expected(at));
    at++;
    /* The last item is incomplete. */
    size_t rest = length - at;
    each = 4 * MIB + 1;
    CHECK(rest % each != 0);
    CHECK(fread(buffer, each, rest / each + 1, stream) == rest / each);
    check_bytes(buffer, at, rest);
    CHECK(feof(stream));
    CHECK(fclose(stream) == 0);
    stream = fopen(path, "r+");
    CHECK(fseeko(stream, 10, SEEK_SET) == 0);
    CHECK(fread(buffer, 1, 4 * MIB, stream) == 4 * MIB);
    check_bytes(buffer, 10, 4 * MIB);
    stream = fopen("/", "r");
    errno = 0;
    CHECK(fread(buffer, 1, 4 * MIB, stream) == 0 && ferror(stream) && errno == EISDIR);
}

int main(int count, char **arguments) {
    static const struct action actions[] = {
        {"read_whole", read_whole},
        {"read_odd", read_odd},
        {"pread_anywhere", pread_anywhere},
        {"read_vectors", read_vectors},
        {"bad_reads", bad_reads},
        {"by_threads", by_threads},
        {"pipes_and_cancels", pipes_and_cancels},
        {"stream_whole", stream_whole},
        {"stream_odd", stream_odd},
    };
    CHECK(count == 3);
    return run_deed(actions, sizeof actions / sizeof *actions, arguments);
}
