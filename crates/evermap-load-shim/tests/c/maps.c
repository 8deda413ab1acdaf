/* Maps a file, unaware of preloaded libraries: `maps ACTION FILE`. */
#include "check.h"
#include <spawn.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

static unsigned char *map_bytes(size_t bytes, off_t offset, int protection, int flags) {
    int fd = open_file(O_RDONLY);
    unsigned char *mapped = mmap(NULL, bytes ? bytes : length, protection, flags, fd, offset);
    CHECK(mapped != MAP_FAILED);
    CHECK(((uintptr_t)mapped & (PAGE - 1)) == 0);
    CHECK(close(fd) == 0);
    return mapped;
}

static unsigned char *map(void) {
    return map_bytes(0, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE);
}

static void read_and_write(void) {
    unsigned char *mapped = map();
    /* Backwards, so that on-demand windows are loaded out of order. */
    check_bytes(mapped + length - PAGE, length - PAGE, PAGE);
    check_bytes(mapped, 0, length);
    size_t end = (length + PAGE - 1) & ~(PAGE - 1);
    for (size_t at = length; at < end; at++)
        CHECK(mapped[at] == 0);
    for (size_t at = 0; at < length; at += PAGE)
        mapped[at] ^= 0xff;
    for (size_t at = 0; at < length; at += PAGE) {
        CHECK(mapped[at] == (expected(at) ^ 0xff));
        CHECK(mapped[at + 1] == expected(at + 1) || at + 1 >= length);
    }
    unsigned char byte;
    int fd = open_file(O_RDONLY);
    CHECK(pread(fd, &byte, 1, 0) == 1 && byte == expected(0));
    CHECK(munmap(mapped, length) == 0);
}

static void write_out(void) {
    unsigned char *mapped = map();
    char name[4096];
    snprintf(name, sizeof name, "%s.out", path);
    int out = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(out >= 0);
    for (size_t done = 0; done < length;) {
        ssize_t written = write(out, mapped + done, length - done);
        CHECK(written > 0);
        done += (size_t)written;
    }
    CHECK(close(out) == 0);
}

static void unmap_parts(void) {
    unsigned char *mapped = map();
    size_t from = 300 * PAGE, to = 1500 * PAGE;
    CHECK(munmap(mapped + from, to - from) == 0);
    unsigned char there[1];
    CHECK(mincore(mapped + from, PAGE, there) == -1 && errno == ENOMEM);
    CHECK(mincore(mapped + to - PAGE, PAGE, there) == -1 && errno == ENOMEM);
    check_bytes(mapped, 0, from);
    check_bytes(mapped + to, to, length - to);
    CHECK(munmap(mapped, PAGE) == 0);
    check_bytes(mapped + PAGE, PAGE, from - PAGE);
    CHECK(munmap(mapped, length) == 0);
    CHECK(munmap(mapped + 1, PAGE) == -1 && errno == EINVAL);
}

static void unmap_early(void) {
    for (int round = 0; round < 20; round++) {
        unsigned char *mapped = map();
        if (round % 2)
            CHECK(mapped[length / 2] == expected(length / 2));
        CHECK(munmap(mapped, length) == 0);
        /* Do not unmap it later, when the address may be reused. */
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
        CHECK(mmap(mapped, length, PROT_READ, flags, -1, 0) == mapped);
        usleep(10000);
        CHECK(mapped[length - 1] == 0);
        CHECK(munmap(mapped, length) == 0);
        unsigned char there[1];
        CHECK(mincore(mapped, PAGE, there) == -1 && errno == ENOMEM);
    }
}

static void remap(void) {
    close(open_file(O_RDONLY));
    size_t half = length / 2 & ~(PAGE - 1);
    unsigned char *mapped = map_bytes(half, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    mapped[5] = 77;
    unsigned char *grown = mremap(mapped, half, length, MREMAP_MAYMOVE);
    CHECK(grown != MAP_FAILED);
    CHECK(grown[5] == 77);
    grown[5] = expected(5);
    check_bytes(grown, 0, length);
    grown[half + 9] = 1;
    CHECK(grown[half + 9] == 1);
    CHECK(munmap(grown, length) == 0);

    mapped = map();
    unsigned char *less = mremap(mapped, length, half, 0);
    CHECK(less == mapped);
    check_bytes(less, 0, half);
    unsigned char there[1];
    CHECK(mincore(mapped + half, PAGE, there) == -1 && errno == ENOMEM);
    unsigned char *place = mmap(NULL, half, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    CHECK(mremap(less, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, place) == place);
    check_bytes(place, 0, half);
    place[0] = 3;
    CHECK(madvise(place, PAGE, MADV_DONTNEED) == 0);
    check_bytes(place, 0, half);
    CHECK(munmap(place, half) == 0);
}

static void dont_need(void) {
    unsigned char *mapped = map();
    memset(mapped + PAGE, 9, 700 * PAGE);
    mapped[0] = 8;
    CHECK(madvise(mapped + PAGE, 700 * PAGE, MADV_FREE) == -1 && errno == EINVAL);
    CHECK(mapped[PAGE] == 9);
    CHECK(madvise(mapped + PAGE, 700 * PAGE, MADV_DONTNEED) == 0);
    CHECK(mapped[0] == 8);
    check_bytes(mapped + 1, 1, length - 1);
    mapped[PAGE] = 7;
    CHECK(mapped[PAGE] == 7);
    CHECK(madvise(mapped, length, MADV_DONTNEED) == 0);
    check_bytes(mapped, 0, length);
    CHECK(mprotect(mapped, length, PROT_READ) == 0);
    CHECK(madvise(mapped, length, MADV_DONTNEED) == 0);
    check_bytes(mapped, 0, length);
    CHECK(msync(mapped, length, MS_SYNC) == 0);
    CHECK(munmap(mapped, length) == 0);
}

static void ended_well(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fork_at_once(void) {
    unsigned char *mapped = map();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        check_bytes(mapped, 0, length);
        mapped[0] ^= 0xff;
        /* A child has its own images too. */
        unsigned char *own = map();
        check_bytes(own, 0, length);
        CHECK(munmap(mapped, length) == 0 && munmap(own, length) == 0);
        exit(0);
    }
    ended_well(child);
    check_bytes(mapped, 0, length);
    /* Starting a program does not wait for the parent's loads. */
    unsigned char *other = map();
    char *arguments[] = {"true", NULL}, *environment[] = {NULL};
    CHECK(posix_spawnp(&child, "true", NULL, NULL, arguments, environment) == 0);
    ended_well(child);
    check_bytes(other, 0, length);
}

static void dies_writing(unsigned char *mapped) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        *(volatile unsigned char *)mapped = 1;
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

static void read_only(void) {
    unsigned char *mapped = map_bytes(0, 0, PROT_READ, MAP_PRIVATE);
    check_bytes(mapped, 0, length);
    dies_writing(mapped);
    CHECK(munmap(mapped, length) == 0);
    mapped = map_bytes(0, 0, PROT_READ, MAP_SHARED);
    check_bytes(mapped, 0, length);
    dies_writing(mapped);
    CHECK(msync(mapped, length, MS_ASYNC) == 0);
    CHECK(munmap(mapped, length) == 0);
    mapped = map();
    CHECK(mprotect(mapped, length, PROT_READ) == 0);
    check_bytes(mapped, 0, length);
    dies_writing(mapped);
}

static void shared_is_written(void) {
    int fd = open_file(O_RDWR);
    unsigned char *mapped = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(mapped != MAP_FAILED);
    mapped[3] ^= 0xff;
    unsigned char byte;
    CHECK(pread(fd, &byte, 1, 3) == 1 && byte == (expected(3) ^ 0xff));
    mapped[3] ^= 0xff;
    CHECK(munmap(mapped, length) == 0);
}

static void at_fixed_addresses(void) {
    int fd = open_file(O_RDONLY);
    size_t room = length + 16 * PAGE;
    unsigned char *place = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    unsigned char *mapped =
        mmap(place + 4 * PAGE, length, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0);
    CHECK(mapped == place + 4 * PAGE);
    check_bytes(mapped, 0, length);
    CHECK(munmap(place, room) == 0);
    /* Another mapping in the middle of an image stays when the rest is unmapped. */
    mapped = map();
    size_t from = 600 * PAGE, bytes = 20 * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    unsigned char *zeros = mmap(mapped + from, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(zeros == mapped + from);
    for (size_t at = 0; at < bytes; at++)
        CHECK(zeros[at] == 0);
    check_bytes(mapped, 0, from);
    check_bytes(mapped + from + bytes, from + bytes, length - from - bytes);
    CHECK(madvise(mapped, length, MADV_DONTNEED) == 0);
    CHECK(zeros[0] == 0);
    check_bytes(mapped, 0, from);
    CHECK(munmap(mapped, from) == 0);
    zeros[0] = 5;
    CHECK(munmap(zeros + bytes, length - from - bytes) == 0);
    CHECK(zeros[0] == 5);
}

static void ranges(void) {
    int protection = PROT_READ | PROT_WRITE;
    size_t offset = 3 * PAGE, bytes = 1000 * PAGE + 17;
    unsigned char *mapped = map_bytes(bytes, (off_t)offset, protection, MAP_PRIVATE);
    /* The rest of the last page shows the file. */
    check_bytes(mapped, offset, 1001 * PAGE);
    unsigned char *rest = map_bytes(length - 1024 * PAGE, (off_t)(1024 * PAGE), protection, MAP_PRIVATE);
    check_bytes(rest, 1024 * PAGE, length - 1024 * PAGE);
    CHECK(munmap(mapped, bytes) == 0);
    CHECK(munmap(rest, length - 1024 * PAGE) == 0);
    /* Beyond the file's end: an ordinary mapping, whose last pages raise a signal. */
    int fd = open_file(O_RDONLY);
    mapped = mmap(NULL, length + 8 * PAGE, protection, MAP_PRIVATE, fd, 0);
    CHECK(mapped != MAP_FAILED);
    check_bytes(mapped, 0, length);
    CHECK(mmap(NULL, length, protection, MAP_PRIVATE, fd, 1) == MAP_FAILED && errno == EINVAL);
    CHECK(mmap(NULL, length, protection, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
}

static void closes_everything(void) {
    unsigned char *mapped = map();
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    check_bytes(mapped, 0, length);
    unsigned char *other = map();
    closefrom(3);
    check_bytes(other, 0, length);
    unsigned char *third = map();
    for (int fd = 3; fd < 64; fd++)
        dup2(2, fd);
    check_bytes(third, 0, length);
    CHECK(munmap(mapped, length) == 0);
    CHECK(munmap(other, length) == 0);
    CHECK(munmap(third, length) == 0);
    for (int fd = 3; fd < 64; fd++)
        CHECK(fcntl(fd, F_GETFD) >= 0);
}

static void *one_of_many(void *nothing) {
    (void)nothing;
    for (int round = 0; round < 3; round++) {
        unsigned char *mapped = map();
        check_bytes(mapped, 0, length);
        CHECK(munmap(mapped, length) == 0);
    }
    return NULL;
}

static void by_threads(void) {
    pthread_t threads[4];
    close(open_file(O_RDONLY));
    for (int at = 0; at < 4; at++)
        CHECK(pthread_create(&threads[at], NULL, one_of_many, NULL) == 0);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            unsigned char *mapped = map();
            check_bytes(mapped, 0, length);
            _exit(0);
        }
        ended_well(child);
    }
    for (int at = 0; at < 4; at++)
        CHECK(pthread_join(threads[at], NULL) == 0);
}

/* Checks that a load leaves no descriptors, threads or addresses except those it returned. */
static void leaves_nothing(void) {
    int before = 0;
    for (int fd = 3; fd < 256; fd++)
        before += fcntl(fd, F_GETFD) >= 0;
    unsigned char *mapped = map();
    check_bytes(mapped, 0, length);
    char task[64];
    for (int tries = 0; tries < 1000; tries++) {
        usleep(10000);
        int others = 0, descriptors = 0;
        for (int fd = 3; fd < 256; fd++)
            descriptors += fcntl(fd, F_GETFD) >= 0;
        snprintf(task, sizeof task, "/proc/%d/task", getpid());
        struct stat stat_of;
        CHECK(stat(task, &stat_of) == 0);
        others = (int)stat_of.st_nlink - 3;
        if (descriptors == before && others == 0)
            return;
    }
    CHECK(!"resources of the load are left");
}

int main(int count, char **arguments) {
    static const struct action actions[] = {
        {"read_and_write", read_and_write},
        {"write_out", write_out},
        {"unmap_parts", unmap_parts},
        {"unmap_early", unmap_early},
        {"remap", remap},
        {"dont_need", dont_need},
        {"fork_at_once", fork_at_once},
        {"read_only", read_only},
        {"shared_is_written", shared_is_written},
        {"at_fixed_addresses", at_fixed_addresses},
        {"ranges", ranges},
        {"closes_everything", closes_everything},
        {"by_threads", by_threads},
        {"leaves_nothing", leaves_nothing},
    };
    CHECK(count == 3);
    return run_deed(actions, sizeof actions / sizeof *actions, arguments);
}
