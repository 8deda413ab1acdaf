/*
 * Uses every function of evermap_transfer.h and checks what it promises. Built with sanitizers, and with
 * SIGPIPE as it is by default: a peer that goes away would end this program.
 *
 *     transfers DIRECTORY
 */
#define _DEFAULT_SOURCE
#include "check.h"

#include <evermap_transfer.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIZE (3 << 20)

static char from[4000], to[4000];
static char *content;

static void fill(const char *path, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(content, 1, size, file) == size && fclose(file) == 0);
}

/* The file has the first `size` bytes of what all files here have. */
static void has(const char *path, size_t size)
{
    char *found = malloc(size + 1);
    FILE *file = fopen(path, "rb");
    CHECK(found != NULL && file != NULL);
    CHECK(fread(found, 1, size + 1, file) == size && memcmp(found, content, size) == 0);
    fclose(file);
    free(found);
}

struct told {
    uint64_t arrived_bytes, total_bytes;
    int calls, used, not_used, refuse;
    uint64_t used_bytes;
    pthread_t thread;
};

static bool progress(uint64_t arrived_bytes, uint64_t total_bytes, void *context)
{
    struct told *told = context;
    CHECK(arrived_bytes >= told->arrived_bytes && pthread_equal(told->thread, pthread_self()));
    told->arrived_bytes = arrived_bytes;
    told->total_bytes = total_bytes;
    told->calls++;
    return !told->refuse;
}

static bool explain(const em_explanation *explanation, void *context)
{
    struct told *told = context;
    CHECK(explanation->size >= sizeof(em_explanation));
    CHECK(explanation->what != NULL && explanation->path != NULL && explanation->why != NULL);
    CHECK(pthread_equal(told->thread, pthread_self()));
    if (explanation->kind == EM_EXPLAINED_USED) {
        told->used++;
        told->used_bytes += explanation->bytes;
        CHECK(explanation->what[0] != 0);
    }
    told->not_used += explanation->kind == EM_EXPLAINED_NOT_USED;
    return true;
}

static void copies(void)
{
    OK(evermap_copy(from, to, NULL, NULL));
    has(to, SIZE);

    struct told told = { .thread = pthread_self() };
    em_transfer_report report = { .size = sizeof report };
    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    options.engine = "read-write";
    options.durability = EM_COPY_DURABILITY_FULL;
    options.reflink = EM_REFLINK_NEVER;
    options.verify = options.resume = 1;
    options.progress = progress;
    options.explain = explain;
    options.context = &told;
    OK(evermap_copy(from, to, &options, &report));
    has(to, SIZE);
    CHECK(report.size == sizeof report && report.size_bytes == SIZE && report.data_bytes == SIZE);
    CHECK(strcmp(report.engine, "read-write") == 0 && strcmp(report.why, "asked for by name") == 0);
    CHECK(report.verified && report.copied_permille == 2000 && report.calls > 0 && report.wall_ns > 0);
    CHECK(report.files == 1 && report.directories == 0 && report.failed == 0);
    CHECK(told.calls > 0 && told.arrived_bytes == SIZE && told.total_bytes == SIZE);
    CHECK(told.used == 1 && told.used_bytes == SIZE);

    /* A program that knows a shorter report gets that much. */
    struct { size_t size; uint64_t size_bytes, behind; } shorter = { 16, 0, 7 };
    OK(evermap_copy(from, to, NULL, (em_transfer_report *)&shorter));
    CHECK(shorter.size == 16 && shorter.size_bytes == SIZE && shorter.behind == 7);
}

static void directories(const char *place)
{
    char tree[4100], copy[4100], inside[4200];
    sprintf(tree, "%s/tree", place);
    sprintf(copy, "%s/copy", place);
    CHECK(mkdir(tree, 0700) == 0);
    sprintf(inside, "%s/file", tree);
    fill(inside, 100);
    em_transfer_report report = { .size = sizeof report };
    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    options.keep_going = options.one_file_system = 1;
    options.threads = 2;
    OK(evermap_copy(tree, copy, &options, &report));
    sprintf(inside, "%s/file", copy);
    has(inside, 100);
    CHECK(report.files == 1 && report.directories == 1 && report.data_bytes == 100);
    /* Now there is one: it goes into it, under its name. */
    OK(evermap_copy(tree, copy, NULL, NULL));
    sprintf(inside, "%s/tree/file", copy);
    has(inside, 100);
}

static void moves(void)
{
    int source = open(from, O_RDONLY), target = open(to, O_RDWR | O_TRUNC);
    CHECK(source >= 0 && target >= 0);
    em_transfer_report report = { .size = sizeof report };
    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    options.sparse = 1;
    options.durability = EM_COPY_DURABILITY_DATA;
    OK(evermap_move(source, target, &options, &report));
    CHECK(report.data_bytes == SIZE && report.size_bytes == SIZE);
    has(to, SIZE);

    /* A part, through a pipe. */
    int ends[2];
    char part[1000];
    struct told told = { .thread = pthread_self() };
    CHECK(pipe(ends) == 0);
    em_transfer_options some = EM_TRANSFER_OPTIONS_DEFAULT;
    some.begin_bytes = 777;
    some.length_bytes = sizeof part;
    some.progress = progress;
    some.context = &told;
    OK(evermap_move(source, ends[1], &some, NULL));
    CHECK(read(ends[0], part, sizeof part) == sizeof part);
    CHECK(memcmp(part, content + 777, sizeof part) == 0);
    CHECK(told.arrived_bytes == sizeof part && told.total_bytes == sizeof part);

    /* Through a pair of sockets into a file, to the peer's end. */
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    CHECK(write(sockets[0], content, 5000) == 5000 && shutdown(sockets[0], SHUT_WR) == 0);
    CHECK(ftruncate(target, 0) == 0);
    OK(evermap_move(sockets[1], target, NULL, &report));
    CHECK(report.data_bytes == 5000);
    has(to, 5000);

    /* Whoever reads has gone: an error, and no signal, neither now nor later. */
    close(ends[0]);
    REFUSED(evermap_move(source, ends[1], NULL, NULL), EM_IO, "pipe:[");
    CHECK(errno == EPIPE);
    close(sockets[1]);
    REFUSED(evermap_move(source, sockets[0], NULL, NULL), EM_IO, "socket:[");
    CHECK(errno == EPIPE);
    close(ends[1]);
    close(sockets[0]);
    REFUSED(evermap_move(source, ends[1], NULL, NULL), EM_INVALID_ARGUMENT, "no open file descriptor");
    REFUSED(evermap_move(-1, target, NULL, NULL), EM_INVALID_ARGUMENT, "no open file descriptor");

    some.begin_bytes = SIZE - 10;
    some.length_bytes = 20;
    REFUSED(evermap_move(source, target, &some, NULL), EM_SOURCE_CHANGED, "changed while");
    CHECK(errno == ESTALE && fcntl(source, F_GETFD) != -1 && fcntl(target, F_GETFD) != -1);
    close(source);
    close(target);
}

static volatile sig_atomic_t stop;

static void on_alarm(int number)
{
    stop = number;
}

static void interruptions(void)
{
    fill(to, 10);
    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    int yes = 1;
    options.cancelled = &yes;
    REFUSED(evermap_copy(from, to, &options, NULL), EM_CANCELLED, "interrupted");
    CHECK(errno == ECANCELED);
    has(to, 10);

    /* From a pipe that never ends and does not block, until the signal comes. */
    int ends[2], target = open(to, O_RDWR);
    CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && target >= 0);
    CHECK(write(ends[1], content, 1000) == 1000);
    CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
    alarm(1);
    options.cancelled = &stop;
    REFUSED(evermap_move(ends[0], target, &options, NULL), EM_CANCELLED, "has the bytes that arrived");
    has(to, 1000);

    /* The same by the callback. */
    struct told told = { .thread = pthread_self(), .refuse = 1 };
    options = (em_transfer_options)EM_TRANSFER_OPTIONS_DEFAULT;
    options.progress = progress;
    options.context = &told;
    REFUSED(evermap_move(ends[0], target, &options, NULL), EM_CANCELLED, "interrupted");
    CHECK(told.calls > 0);
    close(ends[0]);
    close(ends[1]);
    close(target);
}

static void refusals(const char *place)
{
    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    options.engine = "none";
    REFUSED(evermap_copy(from, to, &options, NULL), EM_INVALID_ARGUMENT, "copy-file-range");
    options.engine = NULL;
    options.sparse = 1;
    REFUSED(evermap_copy(from, to, &options, NULL), EM_INVALID_ARGUMENT, "`sparse`");
    options.sparse = 0;
    options.durability = 7;
    REFUSED(evermap_copy(from, to, &options, NULL), EM_INVALID_ARGUMENT, "`durability`");
    options.durability = 0;
    options.reflink = 7;
    REFUSED(evermap_copy(from, to, &options, NULL), EM_INVALID_ARGUMENT, "`reflink`");
    options.reflink = 0;
    options.verify = 1;
    REFUSED(evermap_move(0, 1, &options, NULL), EM_INVALID_ARGUMENT, "`verify`");
    options.size = 0;
    REFUSED(evermap_copy(from, to, &options, NULL), EM_INVALID_ARGUMENT, "sizeof");
    em_transfer_report report = { 0 };
    REFUSED(evermap_copy(from, to, NULL, &report), EM_INVALID_ARGUMENT, "sizeof");
    REFUSED(evermap_copy(NULL, to, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_copy(from, NULL, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_copy(from, from, NULL, NULL), EM_INVALID_ARGUMENT, "same file");
    REFUSED(evermap_copy("/nonexistent/file", to, NULL, NULL), EM_IO, "/nonexistent/file");
    CHECK(errno == ENOENT);
    options = (em_transfer_options)EM_TRANSFER_OPTIONS_DEFAULT;
    options.resume = 1;
    REFUSED(evermap_copy(place, "/nonexistent/copy", &options, NULL), EM_INVALID_ARGUMENT, "resume");
    /* Blocks are shared between regular files only. */
    int ends[2], source = open(from, O_RDONLY);
    CHECK(pipe(ends) == 0 && source >= 0);
    options = (em_transfer_options)EM_TRANSFER_OPTIONS_DEFAULT;
    options.engine = "reflink";
    REFUSED(evermap_move(source, ends[1], &options, NULL), EM_REFUSED, "engine `reflink`");
    CHECK(errno == EOPNOTSUPP);
    close(ends[0]);
    close(ends[1]);
    close(source);
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    sprintf(from, "%s/from", argument[1]);
    sprintf(to, "%s/to", argument[1]);
    content = malloc(SIZE);
    CHECK(content != NULL);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (char)(i * 31 + (i >> 8) + (i >> 16));
    fill(from, SIZE);
    copies();
    directories(argument[1]);
    moves();
    interruptions();
    refusals(argument[1]);
    free(content);
    puts("transfers did what they promise");
    return 0;
}
