/*
 * Uses every function of evermap_load.h and checks its documented behaviour. Built with sanitizers.
 *
 *     loads DIRECTORY
 */
#define _DEFAULT_SOURCE
#include "check.h"

#include <evermap_load.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WINDOW ((size_t)2 << 20)
#define SIZE (3 * WINDOW + 4097)

static const char *const methods[] = {
    "read", "read-huge", "read-uncached", "mmap", "mmap-huge", "mmap-willneed", "mmap-populate-read",
    "mmap-populate-write", "mmap-shared", "takeover", "takeover-on-demand", "clone",
};
#define METHODS (sizeof methods / sizeof *methods)

static char file[4000];
static unsigned char *content;

static void fill(const char *path, size_t size)
{
    FILE *stream = fopen(path, "wb");
    CHECK(stream != NULL && fwrite(content, 1, size, stream) == size && fclose(stream) == 0);
}

static void is_unchanged(const char *path, size_t size)
{
    unsigned char *found = malloc(size + 1);
    FILE *stream = fopen(path, "rb");
    CHECK(found != NULL && stream != NULL);
    CHECK(fread(found, 1, size + 1, stream) == size && memcmp(found, content, size) == 0);
    fclose(stream);
    free(found);
}

/* The files of this test do not change while they are mapped. */
static em_load_options by(const char *method)
{
    em_load_options options = EM_LOAD_OPTIONS_DEFAULT;
    options.method = method;
    options.may_map = 1;
    return options;
}

/* Loads by one method; returns NULL and prints a message if the kernel or file system lacks it. */
static evermap_image *loaded(const char *path, const em_load_options *options)
{
    evermap_image *image = NULL;
    em_status status = evermap_load(path, options, &image);
    if (status == EM_REFUSED) {
        CHECK(errno == EOPNOTSUPP);
        fprintf(stderr, "SKIPPED: %s\n", em_last_error_message());
        return NULL;
    }
    OK(status);
    CHECK(image != NULL);
    return image;
}

static void has(const evermap_image *image, size_t begin, size_t length)
{
    const unsigned char *bytes = evermap_image_address(image);
    CHECK(bytes != NULL && evermap_image_length(image) == length);
    CHECK(memcmp(bytes, content + begin, length) == 0);
}

static void reports(const evermap_image *image, const char *method, size_t length)
{
    em_load_report report = { .size = sizeof report };
    OK(evermap_image_report(image, &report));
    CHECK(report.size == sizeof report && report.bytes == length);
    CHECK(strcmp(report.method, method) == 0 && strcmp(report.why, "requested by name") == 0);
    CHECK(report.first_use_ns > 0 && report.complete_ns >= report.first_use_ns);
    CHECK(report.threads >= 1 && report.refused == 0 && report.threads_replaced == 0);
    CHECK(report.private_bytes + report.file_bytes + report.swapped_bytes >= length);
    CHECK(report.huge_bytes <= report.private_bytes && report.duplicate_bytes <= report.private_bytes);
    CHECK(report.hole_bytes == 0 && report.peak_resident_bytes >= length);
    em_residency residency = { .size = sizeof residency };
    OK(evermap_image_residency(image, &residency));
    CHECK(residency.private_bytes + residency.file_bytes + residency.swapped_bytes >= length);

    char why[400], part[10];
    size_t bytes = evermap_image_why(image, why, sizeof why);
    CHECK(bytes == strlen(why) && strncmp(why, method, strlen(method)) == 0);
    CHECK(strstr(why, ": requested by name") != NULL);
    CHECK(evermap_image_why(image, part, sizeof part) == bytes && strlen(part) == 9);
    CHECK(evermap_image_why(image, NULL, 0) == bytes && memcmp(part, why, 9) == 0);
    FAILS(evermap_image_why(image, NULL, 1), 0, EM_INVALID_ARGUMENT, "NULL");
}

static void every_method(void)
{
    static const size_t sizes[] = { 0, 1, 4096, 4097, SIZE };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t m = 0; m < METHODS; m++) {
            size_t size = sizes[s];
            uint64_t done, total;
            bool serves;
            fill(file, size);
            em_load_options options = by(methods[m]);
            evermap_image *image = loaded(file, &options);
            if (image == NULL)
                continue;
            has(image, 0, size);
            unsigned char *bytes = evermap_image_writable_address(image);
            CHECK(bytes != NULL && bytes == evermap_image_address(image));
            for (size_t i = 0; i < size; i++)
                bytes[i] ^= 0xff;
            OK(evermap_image_wait(image));
            for (size_t i = 0; i < size; i++)
                CHECK(bytes[i] == (content[i] ^ 0xff));
            OK(evermap_image_progress(image, &done, &total));
            CHECK(done == size && total == size);
            OK(evermap_image_serves_system_calls(image, &serves));
            CHECK(serves);
            OK(evermap_image_check(image));
            reports(image, methods[m], size);
            OK(evermap_image_close(image));
            is_unchanged(file, size);
        }
}

static void ranges(void)
{
    static const size_t parts[][2] = { { 0, 1 }, { 1, 4096 }, { 4095, WINDOW }, { WINDOW - 1, WINDOW + 2 }, { 4096, SIZE - 4096 } };
    fill(file, SIZE);
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
        for (size_t m = 0; m < METHODS; m++) {
            em_load_options options = by(methods[m]);
            options.begin_bytes = parts[p][0];
            options.length_bytes = parts[p][1];
            evermap_image *image = loaded(file, &options);
            if (image == NULL)
                continue;
            has(image, parts[p][0], parts[p][1]);
            if (parts[p][0] % 4096 == 0)
                CHECK((uintptr_t)evermap_image_address(image) % 4096 == 0);
            OK(evermap_image_close(image));
        }
    evermap_image *image;
    em_load_options options = EM_LOAD_OPTIONS_DEFAULT;
    options.begin_bytes = SIZE - 10; /* and no length: to the end */
    OK(evermap_load(file, &options, &image));
    has(image, SIZE - 10, 10);
    OK(evermap_image_close(image));
    options.length_bytes = 11;
    REFUSED(evermap_load(file, &options, &image), EM_OUT_OF_BOUNDS, "use a range within");
    CHECK(errno == ERANGE);
    options.length_bytes = UINT64_MAX;
    REFUSED(evermap_load(file, &options, &image), EM_OUT_OF_BOUNDS, "use a range within");
    options.begin_bytes = SIZE + 1;
    options.length_bytes = 0;
    REFUSED(evermap_load(file, &options, &image), EM_OUT_OF_BOUNDS, file);
}

/* System calls can use bytes that were ensured. */
static void parts_of_an_image(const char *method)
{
    em_load_options options = by(method);
    evermap_image *image = loaded(file, &options);
    if (image == NULL)
        return;
    const unsigned char *bytes = evermap_image_address(image);
    OK(evermap_image_want(image, WINDOW, WINDOW));
    OK(evermap_image_ensure(image, 2 * WINDOW - 10, 20));
    int ends[2];
    char came[20];
    CHECK(pipe(ends) == 0 && write(ends[1], bytes + 2 * WINDOW - 10, 20) == 20);
    CHECK(read(ends[0], came, 20) == 20 && memcmp(came, content + 2 * WINDOW - 10, 20) == 0);
    close(ends[0]);
    close(ends[1]);
    OK(evermap_image_ensure(image, SIZE, 0));
    OK(evermap_image_ensure(image, 0, SIZE));
    REFUSED(evermap_image_ensure(image, SIZE - 1, 2), EM_OUT_OF_BOUNDS, "ask for less");
    REFUSED(evermap_image_ensure(image, SIZE_MAX, SIZE_MAX), EM_OUT_OF_BOUNDS, file);
    REFUSED(evermap_image_want(image, SIZE_MAX - 5, 5), EM_OUT_OF_BOUNDS, "not in it");
    REFUSED(evermap_image_advise(image, 1, SIZE, EM_ADVICE_NEVER), EM_OUT_OF_BOUNDS, "not in it");
    REFUSED(evermap_image_advise(image, 0, 1, (em_advice)7), EM_INVALID_ARGUMENT, "`advice`");
    OK(evermap_image_close(image));
}

static void advice(void)
{
    for (size_t m = 0; m < METHODS; m++)
        for (int advice = EM_ADVICE_WRITE_SOON; advice <= EM_ADVICE_SEQUENTIAL; advice++) {
            em_load_options options = by(methods[m]);
            evermap_image *image = loaded(file, &options);
            if (image == NULL)
                continue;
            unsigned char *bytes = evermap_image_writable_address(image);
            CHECK(bytes != NULL);
            bytes[WINDOW] ^= 1;
            OK(evermap_image_advise(image, 1, SIZE - 1, (em_advice)advice));
            bytes[WINDOW] ^= 1;
            has(image, 0, SIZE);
            OK(evermap_image_close(image));
        }
    /* The method is the requested one. */
    em_load_options options = by("mmap");
    evermap_image *image = loaded(file, &options);
    em_residency residency = { .size = sizeof residency };
    OK(evermap_image_residency(image, &residency));
    CHECK(residency.private_bytes == 0);
    OK(evermap_image_advise(image, 0, SIZE, EM_ADVICE_WRITE_SOON));
    OK(evermap_image_residency(image, &residency));
    CHECK(residency.private_bytes >= 3 * WINDOW);
    OK(evermap_image_close(image));
}

struct choices {
    int count, most;
    char first[32], last[32];
    bool maps;
};

static bool choose(const em_load_choice *choice, void *context)
{
    struct choices *choices = context;
    CHECK(choice->size >= sizeof(em_load_choice) && choice->why[0] != 0 && choice->threads >= 1);
    snprintf(choices->last, sizeof choices->last, "%s", choice->method);
    if (choices->count++ == 0)
        strcpy(choices->first, choices->last);
    choices->maps |= choice->maps_the_file != 0;
    return choices->count != choices->most;
}

static void probes(void)
{
    em_load_facts facts = { .size = sizeof facts };
    struct choices choices = { 0 };
    OK(evermap_load_probe(file, NULL, &facts, choose, &choices));
    CHECK(facts.size == sizeof facts && facts.bytes == SIZE && facts.processors >= 1);
    CHECK(facts.resident_bytes == UINT64_MAX || facts.resident_bytes <= SIZE + 4096);
    CHECK(facts.available_bytes > SIZE && facts.file_system[0] != 0 && facts.reserved == 0);
    CHECK(strncmp(facts.available_limit, "the ", 4) == 0);
    CHECK(choices.count >= 2 && strcmp(choices.last, "read") == 0 && !choices.maps);

    /* The method is the reported one. */
    evermap_image *image;
    em_load_report report = { .size = sizeof report };
    OK(evermap_load(file, NULL, &image));
    OK(evermap_image_report(image, &report));
    CHECK(strcmp(report.method, choices.first) == 0 || report.refused > 0);
    OK(evermap_image_close(image));

    choices = (struct choices){ .most = 1 };
    OK(evermap_load_probe(file, NULL, NULL, choose, &choices));
    CHECK(choices.count == 1);
    OK(evermap_load_probe(file, NULL, NULL, NULL, NULL));
    em_load_options options = by(NULL);
    options.written_permille = EM_LOAD_NONE;
    options.touched_permille = 10;
    options.cache = EM_LOAD_CACHE_KEEP;
    choices = (struct choices){ 0 };
    OK(evermap_load_probe(file, &options, &facts, choose, &choices));
    CHECK(choices.maps && strcmp(choices.first, "mmap-huge") == 0);

    /* A program with a shorter struct of facts gets only that part. */
    struct { size_t size; uint64_t bytes, behind; } shorter = { 16, 0, 7 };
    OK(evermap_load_probe(file, NULL, (em_load_facts *)&shorter, NULL, NULL));
    CHECK(shorter.size == 16 && shorter.bytes == SIZE && shorter.behind == 7);
    REFUSED(evermap_load_probe("/nonexistent/file", NULL, NULL, NULL, NULL), EM_IO, "/nonexistent");
}

static void wishes(void)
{
    evermap_image *image;
    em_load_options options = EM_LOAD_OPTIONS_DEFAULT;
    options.order = EM_LOAD_ORDER_RANDOM;
    options.latency = EM_LOAD_LATENCY_FINISH;
    options.cache = EM_LOAD_CACHE_DROP;
    options.fork = EM_LOAD_FORK_WITHOUT;
    options.touched_permille = options.written_permille = 1000;
    options.threads = 2;
    OK(evermap_load(file, &options, &image));
    has(image, 0, SIZE);
    OK(evermap_image_close(image));

    options = (em_load_options)EM_LOAD_OPTIONS_DEFAULT;
    options.memory_bytes_max = 1 << 20;
    REFUSED(evermap_load(file, &options, &image), EM_NO_MEMORY, "the requested limit leaves");
    CHECK(errno == ENOMEM);
    options.may_map = 1;
    OK(evermap_load(file, &options, &image));
    has(image, 0, SIZE);
    OK(evermap_image_close(image));
}

static void refusals(const char *place)
{
    evermap_image *image = NULL;
    em_load_options options = EM_LOAD_OPTIONS_DEFAULT;
    options.method = "mnap";
    REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, "takeover-on-demand");
    options.method = "mmap"; /* without the promise */
    REFUSED(evermap_load(file, &options, &image), EM_REFUSED, "may_map");
    options.method = "\xff";
    REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, "UTF-8");
    options.method = NULL;
    options.written_permille = 1001;
    REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, "`written_permille`");
    options.written_permille = 0;
    options.touched_permille = 7000;
    REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, "`touched_permille`");
    options.touched_permille = 0;
    uint32_t *const enums[] = { &options.order, &options.latency, &options.cache, &options.fork };
    const char *const names[] = { "`order`", "`latency`", "`cache`", "`fork`" };
    for (int i = 0; i < 4; i++) {
        *enums[i] = 9;
        REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, names[i]);
        *enums[i] = 0;
    }
    options.size = 0;
    REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, "sizeof");
    REFUSED(evermap_load(NULL, NULL, &image), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_load(file, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_load("/nonexistent/file", NULL, &image), EM_IO, "/nonexistent/file");
    CHECK(errno == ENOENT);
    REFUSED(evermap_load(place, NULL, &image), EM_NOT_A_FILE, "is a directory");
    CHECK(errno == EINVAL);
    REFUSED(evermap_load("/dev/null", NULL, &image), EM_NOT_A_FILE, "is a character device");
    CHECK(image == NULL);
    if (geteuid() != 0) {
        CHECK(chmod(file, 0) == 0);
        REFUSED(evermap_load(file, NULL, &image), EM_NOT_PERMITTED, "permissions");
        CHECK(chmod(file, 0600) == 0);
    } else
        fprintf(stderr, "SKIPPED: root may read what nobody may\n");

    OK(evermap_load(file, NULL, &image));
    em_load_report report = { 0 };
    em_residency residency = { 0 };
    uint64_t number;
    REFUSED(evermap_image_report(image, &report), EM_INVALID_ARGUMENT, "sizeof");
    REFUSED(evermap_image_report(image, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_image_residency(image, &residency), EM_INVALID_ARGUMENT, "sizeof");
    REFUSED(evermap_image_progress(image, &number, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_image_progress(image, NULL, &number), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_image_serves_system_calls(image, NULL), EM_INVALID_ARGUMENT, "NULL");
    OK(evermap_image_close(image));
}

static void files_that_change(void)
{
    em_load_options options = by("read");
    evermap_image *image = loaded(file, &options);
    CHECK(truncate(file, 100) == 0);
    REFUSED(evermap_image_check(image), EM_SOURCE_CHANGED, "was truncated");
    CHECK(errno == ESTALE);
    has(image, 0, SIZE);
    OK(evermap_image_close(image));

    /* A change during the load: loaded bytes stay right, and the others are errors. */
    fill(file, SIZE);
    options = by("takeover-on-demand");
    image = loaded(file, &options);
    if (image == NULL)
        return;
    CHECK(truncate(file, WINDOW) == 0);
    em_status status = evermap_image_wait(image);
    if (status != EM_OK) {
        CHECK(status == EM_SOURCE_CHANGED && strstr(em_last_error_message(), "load it again") != NULL);
        REFUSED(evermap_image_wait(image), EM_SOURCE_CHANGED, file);
    } else
        has(image, 0, SIZE);
    REFUSED(evermap_image_check(image), EM_SOURCE_CHANGED, file);
    OK(evermap_image_close(image));
    fill(file, SIZE);
}

/* Calls every function with invalid handles. */
static void closed(evermap_image *image)
{
    em_load_report report = { .size = sizeof report };
    em_residency residency = { .size = sizeof residency };
    uint64_t one, two;
    bool flag;
    FAILS(evermap_image_address(image), NULL, EM_CLOSED, image == NULL ? "NULL" : "not an open handle");
    FAILS(evermap_image_writable_address(image), NULL, EM_CLOSED, "");
    FAILS(evermap_image_length(image), 0, EM_CLOSED, "");
    FAILS(evermap_image_why(image, NULL, 0), 0, EM_CLOSED, "");
    REFUSED(evermap_image_ensure(image, 0, 0), EM_CLOSED, "");
    REFUSED(evermap_image_want(image, 0, 0), EM_CLOSED, "");
    REFUSED(evermap_image_wait(image), EM_CLOSED, "");
    REFUSED(evermap_image_advise(image, 0, 0, EM_ADVICE_NEVER), EM_CLOSED, "");
    REFUSED(evermap_image_check(image), EM_CLOSED, "");
    REFUSED(evermap_image_progress(image, &one, &two), EM_CLOSED, "");
    REFUSED(evermap_image_serves_system_calls(image, &flag), EM_CLOSED, "");
    REFUSED(evermap_image_residency(image, &residency), EM_CLOSED, "");
    REFUSED(evermap_image_report(image, &report), EM_CLOSED, "");
    REFUSED(evermap_image_recording(image, NULL, NULL), EM_CLOSED, "");
    REFUSED(evermap_image_close(image), EM_CLOSED, "");
}

static void handles(void)
{
    evermap_image *image, *next;
    closed(NULL);
    OK(evermap_load(file, NULL, &image));
    closed((evermap_image *)&image);
    closed((evermap_image *)((uintptr_t)image + 16));
    closed((evermap_image *)((uintptr_t)image | 1));
    OK(evermap_image_close(image));
    closed(image);
    OK(evermap_load(file, NULL, &next));
    CHECK(next != image);
    closed(image);
    OK(evermap_image_close(next));
}

/* Loads all of many files, or none, or the available ones. */
static void many(const char *place)
{
    enum { COUNT = 20 };
    static char paths[COUNT][4100];
    em_load_file files[COUNT];
    evermap_image *images[COUNT] = { NULL };
    em_status statuses[COUNT];
    em_load_options part = EM_LOAD_OPTIONS_DEFAULT;
    part.begin_bytes = 7;
    for (size_t i = 0; i < COUNT; i++) {
        sprintf(paths[i], "%s/many-%zu", place, i);
        fill(paths[i], 7 + i * 100000);
        files[i] = (em_load_file){ paths[i], i % 2 ? &part : NULL };
    }
    OK(evermap_load_all(files, COUNT, images, NULL));
    for (size_t i = 0; i < COUNT; i++) {
        has(images[i], i % 2 ? 7 : 0, i % 2 ? i * 100000 : 7 + i * 100000);
        OK(evermap_image_close(images[i]));
        images[i] = NULL;
    }
    CHECK(remove(paths[3]) == 0 && truncate(paths[5], 3) == 0);
    REFUSED(evermap_load_all(files, COUNT, images, NULL), EM_IO, "many-3");
    CHECK(errno == ENOENT && images[0] == NULL && images[19] == NULL);
    REFUSED(evermap_load_all(files, COUNT, images, statuses), EM_IO, "many-3");
    for (size_t i = 0; i < COUNT; i++) {
        CHECK(statuses[i] == (i == 3 ? EM_IO : i == 5 ? EM_OUT_OF_BOUNDS : EM_OK));
        CHECK((images[i] == NULL) == (i == 3 || i == 5));
        if (images[i] != NULL)
            OK(evermap_image_close(images[i]));
    }
    files[19].path = NULL;
    REFUSED(evermap_load_all(files, COUNT, images, statuses), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_load_all(NULL, 1, images, NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_load_all(files, 1, NULL, NULL), EM_INVALID_ARGUMENT, "NULL");
    OK(evermap_load_all(NULL, 0, NULL, NULL));
}

static em_load_report report_of(const evermap_image *image)
{
    em_load_report report = { .size = sizeof report };
    OK(evermap_image_report(image, &report));
    return report;
}

static void recordings(const char *place)
{
    char path[4100];
    sprintf(path, "%s/recording", place);
    evermap_image *image;
    em_recording recording = { .size = sizeof recording };
    em_load_options options = EM_LOAD_OPTIONS_DEFAULT;
    options.replay = path;
    REFUSED(evermap_load(file, &options, &image), EM_IO, path);
    options.record = 1;
    REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, "only one of");
    options.replay = NULL;
    OK(evermap_load(file, &options, &image));
    if (report_of(image).recording == EM_RECORDING_NOT_MADE) {
        fprintf(stderr, "SKIPPED: recordings: no userfaultfd is to be had\n");
        OK(evermap_image_close(image));
        return;
    }
    CHECK(report_of(image).recording == EM_RECORDING_MADE);
    unsigned char *bytes = evermap_image_writable_address(image);
    CHECK(bytes[2 * WINDOW] == content[2 * WINDOW] && bytes[5] == content[5]);
    bytes[WINDOW] ^= 1;
    OK(evermap_image_recording(image, path, &recording));
    CHECK(recording.size == sizeof recording && recording.windows_touched == 3);
    CHECK(recording.touched_permille > 0 && recording.touched_permille < 100);
    CHECK(recording.written_permille > 0 && recording.written_permille <= recording.touched_permille);
    CHECK(recording.order == EM_LOAD_ORDER_RANDOM && recording.reserved == 0);
    OK(evermap_image_recording(image, NULL, NULL));
    REFUSED(evermap_image_recording(image, "/nonexistent/recording", NULL), EM_IO, "/nonexistent");
    bytes[WINDOW] ^= 1;
    has(image, 0, SIZE);
    OK(evermap_image_close(image));

    options = (em_load_options)EM_LOAD_OPTIONS_DEFAULT;
    options.replay = path;
    OK(evermap_load(file, &options, &image));
    CHECK(report_of(image).recording == EM_RECORDING_REPLAYED);
    has(image, 0, SIZE);
    REFUSED(evermap_image_recording(image, NULL, &recording), EM_INVALID_ARGUMENT, "not recorded");
    OK(evermap_image_close(image));
    options.begin_bytes = WINDOW; /* another range */
    OK(evermap_load(file, &options, &image));
    CHECK(report_of(image).recording == EM_RECORDING_IGNORED);
    char why[400];
    CHECK(evermap_image_why(image, why, sizeof why) > 0 && strstr(why, "another range") != NULL);
    OK(evermap_image_close(image));

    /* Either status is valid here. */
    CHECK(remove(path) == 0);
    options = (em_load_options)EM_LOAD_OPTIONS_DEFAULT;
    options.recording = path;
    for (int round = 0; round < 2; round++) {
        OK(evermap_load(file, &options, &image));
        CHECK(report_of(image).recording == (round == 0 ? EM_RECORDING_MADE : EM_RECORDING_REPLAYED));
        has(image, 0, SIZE);
        OK(evermap_image_close(image));
    }
    FILE *stream = fopen(path, "w");
    CHECK(stream != NULL && fputs("version = 7\n", stream) >= 0 && fclose(stream) == 0);
    REFUSED(evermap_load(file, &options, &image), EM_MALFORMED, path);
    CHECK(errno == EBADMSG);
}

static void rules(const char *place)
{
    char path[4100];
    sprintf(path, "%s/rules.toml", place);
    FILE *stream = fopen(path, "w");
    CHECK(stream != NULL && fputs("[[file]]\npattern = \"fi*\"\nmethod = \"read\"\n", stream) >= 0);
    CHECK(fclose(stream) == 0);
    evermap_rules *rules, *others;
    evermap_image *image;
    bool matches;
    OK(evermap_rules_read(path, &rules));
    OK(evermap_rules_match(rules, file, &matches));
    CHECK(matches);
    OK(evermap_rules_match(rules, "/elsewhere", &matches));
    CHECK(!matches);
    em_load_options options = EM_LOAD_OPTIONS_DEFAULT;
    options.rules = rules;
    OK(evermap_load(file, &options, &image));
    CHECK(strcmp(report_of(image).method, "read") == 0);
    OK(evermap_image_close(image));
    options.method = "read-huge"; /* what is said here counts before what they say */
    OK(evermap_load(file, &options, &image));
    CHECK(strcmp(report_of(image).method, "read-huge") == 0);
    OK(evermap_image_close(image));

    /* They give no promise by themselves. */
    OK(evermap_rules_parse("[[file]]\npattern = '*'\nmethod = 'mmap'\nunchanging = true\n", &others));
    options = (em_load_options)EM_LOAD_OPTIONS_DEFAULT;
    options.rules = others;
    REFUSED(evermap_load(file, &options, &image), EM_REFUSED, "may_map");
    options.trust_rules = 1;
    OK(evermap_load(file, &options, &image));
    CHECK(strcmp(report_of(image).method, "mmap") == 0);
    has(image, 0, SIZE);
    OK(evermap_image_close(image));
    OK(evermap_rules_close(others));
    REFUSED(evermap_load(file, &options, &image), EM_CLOSED, "not an open handle");
    options.rules = NULL;
    REFUSED(evermap_load(file, &options, &image), EM_INVALID_ARGUMENT, "`trust_rules`");

    REFUSED(evermap_rules_parse("[[file]]\npattern = '*'\nwriten = 1\n", &others), EM_MALFORMED, "writen");
    REFUSED(evermap_rules_parse("\xff", &others), EM_INVALID_ARGUMENT, "UTF-8");
    REFUSED(evermap_rules_parse(NULL, &others), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_rules_parse("", NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_rules_read("/nonexistent/rules", &others), EM_IO, "/nonexistent/rules");
    REFUSED(evermap_rules_match(rules, NULL, &matches), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_rules_match(rules, "x", NULL), EM_INVALID_ARGUMENT, "NULL");
    REFUSED(evermap_rules_match((evermap_rules *)&rules, "x", &matches), EM_CLOSED, "not an open handle");
    OK(evermap_rules_close(rules));
    REFUSED(evermap_rules_close(rules), EM_CLOSED, "not an open handle");
    REFUSED(evermap_rules_match(NULL, "x", &matches), EM_CLOSED, "NULL");
}

static evermap_image *shared;

static void *looks(void *context)
{
    size_t begin = (size_t)(uintptr_t)context * WINDOW;
    uint64_t done, total;
    const unsigned char *bytes = evermap_image_address(shared);
    for (int i = 0; i < 200; i++) {
        em_status status = evermap_image_ensure(shared, begin, WINDOW);
        CHECK(status == EM_OK || status == EM_BUSY);
        CHECK(memcmp(bytes + begin, content + begin, 4096) == 0);
        status = evermap_image_progress(shared, &done, &total);
        CHECK(status == EM_BUSY || (status == EM_OK && done <= total && total == SIZE));
    }
    return NULL;
}

/* Some threads read, others need exclusive use: conflicting calls get EM_BUSY and change
 * nothing. */
static void threads(const char *method)
{
    em_load_options options = by(method);
    shared = loaded(file, &options);
    if (shared == NULL)
        return;
    pthread_t all[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(pthread_create(&all[i], NULL, looks, (void *)i) == 0);
    for (int i = 0; i < 200; i++) {
        em_status status = evermap_image_advise(shared, 3 * WINDOW, 4097, EM_ADVICE_SEQUENTIAL);
        CHECK(status == EM_OK || status == EM_BUSY);
    }
    for (int i = 0; i < 3; i++)
        CHECK(pthread_join(all[i], NULL) == 0);
    has(shared, 0, SIZE);
    OK(evermap_image_close(shared));
}

/* The child has the memory but no handle; the parent does not see its writes. */
static void forks(void)
{
    em_load_options options = by("takeover-on-demand");
    evermap_image *image = loaded(file, &options), *never;
    if (image == NULL)
        OK(evermap_load(file, NULL, &image));
    unsigned char *bytes = evermap_image_writable_address(image);
    int status;
    fflush(NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(memcmp(bytes, content, SIZE) == 0);
        bytes[0] ^= 1;
        FAILS(evermap_image_address(image), NULL, EM_FORKED, "forked");
        FAILS(evermap_image_writable_address(image), NULL, EM_FORKED, "forked");
        FAILS(evermap_image_length(image), 0, EM_FORKED, "forked");
        REFUSED(evermap_image_wait(image), EM_FORKED, "forked");
        REFUSED(evermap_image_close(image), EM_FORKED, "forked");
        REFUSED(evermap_load(file, NULL, &never), EM_FORKED, "forked");
        REFUSED(evermap_load_probe(file, NULL, NULL, NULL, NULL), EM_FORKED, "forked");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    has(image, 0, SIZE);
    OK(evermap_image_close(image));
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    sprintf(file, "%s/file", argument[1]);
    content = malloc(SIZE);
    CHECK(content != NULL);
    for (size_t i = 0; i < SIZE; i++)
        content[i] = (unsigned char)(i * 31 + (i >> 8) + (i >> 16));
    every_method();
    ranges();
    fill(file, SIZE);
    for (size_t m = 0; m < METHODS; m++)
        parts_of_an_image(methods[m]);
    advice();
    probes();
    wishes();
    refusals(argument[1]);
    files_that_change();
    handles();
    many(argument[1]);
    recordings(argument[1]);
    rules(argument[1]);
    threads("read");
    threads("takeover-on-demand");
    forks();
    is_unchanged(file, SIZE);
    free(content);
    puts("loads did what they promise");
    return 0;
}
