/* Shared by the test programs: a file with known bytes, and an exit at the first wrong byte. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);           \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static unsigned char expected(uint64_t at) {
    uint64_t word = (at >> 3) * 0x9E3779B97F4A7C15u;
    return (unsigned char)(word >> (8 * (at & 7)));
}

/* Checks that bytes read are those of the file from `offset` on. */
static void check_bytes(const unsigned char *bytes, uint64_t offset, size_t count) {
    for (size_t at = 0; at < count; at++) {
        if (bytes[at] != expected(offset + at)) {
            fprintf(stderr, "byte %zu is %d, but %d in the file\n", at, bytes[at],
                    expected(offset + at));
            _exit(1);
        }
    }
}

static const char *path;
static size_t length;

static int open_file(int flags) {
    int fd = open(path, flags);
    CHECK(fd >= 0);
    struct stat stat;
    CHECK(fstat(fd, &stat) == 0);
    length = (size_t)stat.st_size;
    return fd;
}

struct action {
    const char *name;
    void (*run)(void);
};

static int run_deed(const struct action *actions, int count, char **arguments) {
    path = arguments[2];
    for (int at = 0; at < count; at++) {
        if (strcmp(actions[at].name, arguments[1]) == 0) {
            actions[at].run();
            return 0;
        }
    }
    fprintf(stderr, "no action %s\n", arguments[1]);
    return 2;
}
