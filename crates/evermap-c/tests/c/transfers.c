/*
 * Uses every function of evermap_transfer.h and checks its documented behaviour. Built with
 * sanitizers, and with the default SIGPIPE: a peer that disconnects would end this program.
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
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE (3 << 20)

static char from[4000], to[4000];
static char *content;

static void fill(const char *path, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL && fwrite(content, 1, size, file) == size && fclose(file) == 0);
}

/* Checks that the file holds the first `size` bytes of the common contents. */
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
    CHECK(strcmp(report.engine, "read-write") == 0 && strcmp(report.why, "requested by name") == 0);
    CHECK(report.verified && report.copied_permille == 2000 && report.calls > 0 && report.wall_ns > 0);
    CHECK(report.files == 1 && report.directories == 0 && report.failed == 0);
    CHECK(told.calls > 0 && told.arrived_bytes == SIZE && told.total_bytes == SIZE);
    CHECK(told.used == 1 && told.used_bytes == SIZE);

    /* A program with a shorter report gets only that part. */
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
    /* Now the directory exists: the copy goes into it, under the source's name. */
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

    /* A part of a file, through a pipe. */
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

    /* Through a pair of sockets into a file, until the peer closes. */
    int sockets[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) == 0);
    CHECK(write(sockets[0], content, 5000) == 5000 && shutdown(sockets[0], SHUT_WR) == 0);
    CHECK(ftruncate(target, 0) == 0);
    OK(evermap_move(sockets[1], target, NULL, &report));
    CHECK(report.data_bytes == 5000);
    has(to, 5000);

    /* The reader has closed: an error, and no signal, neither now nor later. */
    close(ends[0]);
    REFUSED(evermap_move(source, ends[1], NULL, NULL), EM_IO, "pipe:[");
    CHECK(errno == EPIPE);
    close(sockets[1]);
    REFUSED(evermap_move(source, sockets[0], NULL, NULL), EM_IO, "socket:[");
    CHECK(errno == EPIPE);
    close(ends[1]);
    close(sockets[0]);
    REFUSED(evermap_move(source, ends[1], NULL, NULL), EM_INVALID_ARGUMENT, "not an open file descriptor");
    REFUSED(evermap_move(-1, target, NULL, NULL), EM_INVALID_ARGUMENT, "not an open file descriptor");

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

    /* From a non-blocking pipe that never ends, until the signal comes. */
    int ends[2], target = open(to, O_RDWR);
    CHECK(pipe(ends) == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && target >= 0);
    CHECK(write(ends[1], content, 1000) == 1000);
    CHECK(signal(SIGALRM, on_alarm) != SIG_ERR);
    alarm(1);
    options.cancelled = &stop;
    REFUSED(evermap_move(ends[0], target, &options, NULL), EM_CANCELLED, "has the bytes that arrived");
    has(to, 1000);

    /* Cancelled by the callback. */
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

/* Input and output of a receiving thread. */
struct receiving {
    evermap_receiver *receiver;
    const char *address, *target;
    em_transfer_options options;
    em_transfer_report report;
    em_status status;
    char message[1000];
};

static void *receives(void *context)
{
    struct receiving *it = context;
    struct told told = { .thread = pthread_self() };
    it->report.size = sizeof it->report;
    it->options.context = &told;
    it->status = it->receiver != NULL
        ? evermap_receiver_next(it->receiver, it->target, &it->options, &it->report)
        : evermap_receive(it->address, it->target, &it->options, &it->report);
    snprintf(it->message, sizeof it->message, "%s", em_last_error_message());
    if (it->status == EM_OK && it->options.progress != NULL)
        CHECK(told.arrived_bytes == SIZE && told.total_bytes == SIZE);
    return NULL;
}

static pthread_t receive(struct receiving *it)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, receives, it) == 0);
    return thread;
}

static void ended(pthread_t thread, const struct receiving *it, em_status status, const char *text)
{
    CHECK(pthread_join(thread, NULL) == 0);
    if (it->status != status || strstr(it->message, text) == NULL)
        fprintf(stderr, "%s: %s\n", em_status_name(it->status), it->message);
    CHECK(it->status == status && strstr(it->message, text) != NULL);
}

/* Tests all network functions at one address. */
static void sends_to(const char *listen, const char *place)
{
    evermap_receiver *receiver;
    char address[4200], inside[4200];
    OK(evermap_listen(listen, &receiver));
    OK(evermap_receiver_address(receiver, address, sizeof address));
    REFUSED(evermap_receiver_address(receiver, address, 3), EM_INVALID_ARGUMENT, "needed");
    OK(evermap_receiver_address(receiver, address, sizeof address));

    struct receiving it = { receiver, NULL, place, EM_TRANSFER_OPTIONS_DEFAULT, { 0 }, EM_OK, "" };
    it.options.progress = progress;
    sprintf(inside, "%s/sent", place);
    fill(inside, SIZE);
    char source[4200];
    sprintf(source, "%s/received", place);
    CHECK(mkdir(source, 0700) == 0 || errno == EEXIST);
    it.target = source;
    pthread_t thread = receive(&it);
    struct told told = { .thread = pthread_self() };
    em_transfer_report report = { .size = sizeof report };
    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    options.connections = 2;
    options.verify = 1;
    options.engine = "read-write";
    options.progress = progress;
    options.explain = explain;
    options.context = &told;
    OK(evermap_send(inside, address, &options, &report));
    ended(thread, &it, EM_OK, "");
    CHECK(report.published && report.verified && report.connections == 2);
    CHECK(report.data_bytes == SIZE && report.size_bytes == SIZE && report.hole_bytes == 0);
    CHECK(strcmp(report.engine, "read-write") == 0 && report.name[0] == 0);
    CHECK(told.arrived_bytes == SIZE && told.total_bytes == SIZE && told.used == 0);
    CHECK(it.report.published && it.report.verified && strcmp(it.report.name, "sent") == 0);
    strcat(source, "/sent");
    has(source, SIZE);

    /* The same receiver again, discarding, and with raw bytes. */
    em_transfer_options discard = EM_TRANSFER_OPTIONS_DEFAULT;
    discard.discard = 1;
    it = (struct receiving){ receiver, NULL, NULL, discard, { 0 }, EM_OK, "" };
    thread = receive(&it);
    OK(evermap_send(from, address, NULL, &report));
    ended(thread, &it, EM_OK, "");
    CHECK(!report.published && !it.report.published && it.report.data_bytes == SIZE);
    em_transfer_options raw = EM_TRANSFER_OPTIONS_DEFAULT;
    raw.raw = 1;
    it = (struct receiving){ receiver, NULL, to, raw, { 0 }, EM_OK, "" };
    thread = receive(&it);
    OK(evermap_send(from, address, &raw, &report));
    ended(thread, &it, EM_OK, "");
    has(to, SIZE);

    /* The receiver fails: the sender gets its reason. */
    fill(to, 10);
    em_transfer_options wrong = EM_TRANSFER_OPTIONS_DEFAULT;
    wrong.engine = "reflink";
    it = (struct receiving){ receiver, NULL, to, wrong, { 0 }, EM_OK, "" };
    thread = receive(&it);
    REFUSED(evermap_send(from, address, NULL, NULL), EM_PEER, "");
    CHECK(errno == ECONNABORTED);
    ended(thread, &it, EM_REFUSED, "reflink");
    has(to, 10);

    /* No sender comes within the timeout. */
    em_transfer_options soon = EM_TRANSFER_OPTIONS_DEFAULT;
    soon.wait_ms = 50;
    REFUSED(evermap_receiver_next(receiver, to, &soon, NULL), EM_PEER, "no sender connected");
    int yes = 1;
    soon.wait_ms = 0;
    soon.cancelled = &yes;
    REFUSED(evermap_receiver_next(receiver, to, &soon, NULL), EM_CANCELLED, "interrupted");
    has(to, 10);

    OK(evermap_receiver_close(receiver));
    REFUSED(evermap_receiver_close(receiver), EM_CLOSED, "not an open handle");
    REFUSED(evermap_receiver_next(receiver, to, NULL, NULL), EM_CLOSED, "not an open handle");
    REFUSED(evermap_receiver_address(NULL, address, 10), EM_CLOSED, "NULL");
    REFUSED(evermap_send(from, address, NULL, NULL), EM_PEER, "cannot connect");
}

/* A sender that disconnects in the middle, and a receiver that does. */
static void peers_that_go_away(const char *place)
{
    evermap_receiver *receiver;
    char name[4200], address[4200];
    sprintf(name, "unix:%s/gone", place);
    OK(evermap_listen(name, &receiver));
    OK(evermap_receiver_address(receiver, address, sizeof address));
    fill(to, 10);

    /* Sends nothing of the protocol and closes: raw, that is an empty file; else no sender came. */
    em_transfer_options soon = EM_TRANSFER_OPTIONS_DEFAULT;
    soon.wait_ms = 500;
    struct receiving it = { receiver, NULL, to, soon, { 0 }, EM_OK, "" };
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    snprintf(at.sun_path, sizeof at.sun_path, "%s/gone", place);
    int stranger = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(stranger >= 0 && connect(stranger, (struct sockaddr *)&at, sizeof at) == 0);
    CHECK(write(stranger, "GET / HTTP/1.1\r\n\r\n", 18) == 18);
    pthread_t thread = receive(&it);
    CHECK(close(stranger) == 0);
    ended(thread, &it, EM_PEER, "no sender connected");
    has(to, 10);
    OK(evermap_receiver_close(receiver));
    CHECK(access(at.sun_path, F_OK) == -1);

    /* Accepts the connection and closes it: an error for the sender, and no signal. */
    int door = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(door >= 0 && bind(door, (struct sockaddr *)&at, sizeof at) == 0 && listen(door, 4) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 2; i++) {
            int taken = accept(door, NULL, NULL);
            char byte;
            if (taken < 0 || read(taken, &byte, 1) != 1 || close(taken) != 0)
                _exit(1);
        }
        _exit(0);
    }
    close(door);
    REFUSED(evermap_send(from, address, NULL, NULL), EM_PEER, "connection with");
    em_transfer_options raw = EM_TRANSFER_OPTIONS_DEFAULT;
    raw.raw = 1;
    REFUSED(evermap_send(from, address, &raw, NULL), EM_PEER, "connection with");
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

/* One call without a handle: the sender retries until the receiver listens. */
static void received_by_one_call(const char *place)
{
    char address[4200];
    sprintf(address, "unix:%s/once", place);
    struct receiving it = { NULL, address, to, EM_TRANSFER_OPTIONS_DEFAULT, { 0 }, EM_OK, "" };
    it.options.wait_ms = 60000;
    pthread_t thread = receive(&it);
    em_status sent;
    while ((sent = evermap_send(from, address, NULL, NULL)) == EM_PEER
           && strstr(em_last_error_message(), "cannot connect") != NULL)
        usleep(1000);
    OK(sent);
    ended(thread, &it, EM_OK, "");
    has(to, SIZE);
}

static void networks(const char *place)
{
    char address[4200];
    sends_to("127.0.0.1:0", place);
    sprintf(address, "unix:%s/socket", place);
    sends_to(address, place);
    peers_that_go_away(place);
    received_by_one_call(place);

    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    evermap_receiver *receiver;
    REFUSED(evermap_listen("localhost", &receiver), EM_INVALID_ARGUMENT, "HOST:PORT");
    REFUSED(evermap_listen(NULL, &receiver), EM_INVALID_ARGUMENT, "the address is NULL");
    REFUSED(evermap_listen("127.0.0.1:0", NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_receive("127.0.0.1:0", NULL, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_send(from, "127.0.0.1:0", NULL, NULL), EM_INVALID_ARGUMENT, "port 0");
    options.connections = 65;
    REFUSED(evermap_send(from, "127.0.0.1:1", &options, NULL), EM_INVALID_ARGUMENT, "1 to 64");
    REFUSED(evermap_receive("127.0.0.1:0", to, &options, NULL), EM_INVALID_ARGUMENT, "`connections`");
    options.connections = 0;
    options.discard = 1;
    REFUSED(evermap_send(from, "127.0.0.1:1", &options, NULL), EM_INVALID_ARGUMENT, "`discard`");
}

/* Times are not kept if they are excluded. */
static void attributes(void)
{
    struct stat source, copy;
    CHECK(chmod(from, 0640) == 0);
    struct timespec times[2] = { { 1000, 0 }, { 1000, 0 } };
    CHECK(utimensat(AT_FDCWD, from, times, 0) == 0 && stat(from, &source) == 0);
    em_transfer_options options = EM_TRANSFER_OPTIONS_DEFAULT;
    options.without = EM_WITHOUT_TIMES | EM_WITHOUT_XATTRS;
    OK(evermap_copy(from, to, &options, NULL));
    CHECK(stat(to, &copy) == 0 && copy.st_mtime != source.st_mtime && copy.st_mode == source.st_mode);
    options.without = EM_WITHOUT_MODE;
    umask(077);
    OK(evermap_copy(from, to, &options, NULL));
    CHECK(stat(to, &copy) == 0 && copy.st_mtime == source.st_mtime && (copy.st_mode & 0777) == 0600);
    umask(022);
    options.without = 16;
    REFUSED(evermap_copy(from, to, &options, NULL), EM_INVALID_ARGUMENT, "`without`");
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
    attributes();
    networks(argument[1]);
    free(content);
    puts("transfers did what they promise");
    return 0;
}
