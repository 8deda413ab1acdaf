/*
 * A server that opens its page before it forks its workers, as pre-fork servers do, and starts a
 * new generation of workers for each newer page. Each worker serves the page of its generation,
 * while another process commits new pages.
 *
 *     prefork make     makes the page
 *     prefork write    commits it again and again, until there is standard input or its end
 *     prefork serve    serves three generations (EVERMAP_STORE names the store)
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = 4000, WORKERS = 8, GENERATIONS = 3, REQUESTS = 50 };

static em_store *store;
static em_object *page;

/* Returns the number that all words of the page contain. */
static unsigned long number(const em_object *object)
{
    const unsigned long *words = em_root((em_object *)object);
    CHECK(words != NULL);
    for (int i = 1; i < WORDS; i++) {
        CHECK(words[i] == words[0]);
    }
    return words[0];
}

static void make(void)
{
    OK(em_store_create(getenv("EVERMAP_STORE"), NULL, &store));
    OK(em_object_create(store, "page"));
    OK(em_object_open(store, "page", EM_WRITE, NULL, &page));
    unsigned long *words = em_calloc(page, WORDS, sizeof *words);
    CHECK(words != NULL);
    OK(em_set_root(page, words, WORDS * sizeof *words, NULL, "words"));
    OK(em_commit(page, NULL));
}

/* Commits, updates the file if no reader prevents it, and prints each commit. */
static void write_until_told(void)
{
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    options.log_bytes_max = 256 << 10;
    OK(em_store_open(getenv("EVERMAP_STORE"), NULL, &store));
    OK(em_object_open(store, "page", EM_WRITE, &options, &page));
    struct pollfd told = { .fd = STDIN_FILENO, .events = POLLIN };
    unsigned long *words = em_root(page);
    do {
        unsigned long next = words[0] + 1;
        for (int i = 0; i < WORDS; i++) {
            words[i] = next;
        }
        OK(em_commit(page, NULL));
        OK(em_checkpoint(page, NULL));
        if (printf("%lu\n", next) < 0 || fflush(stdout) != 0) {
            break;
        }
    } while (poll(&told, 1, 0) == 0);
}

/* Answers each byte with the page's number; ends with its requests. */
static void work(int requests, int answers)
{
    char request;
    while (read(requests, &request, 1) == 1) {
        unsigned long answer = number(page);
        CHECK(write(answers, &answer, sizeof answer) == sizeof answer);
    }
    bool contains;
    REFUSED(em_commit(page, NULL), EM_FORKED, "forked");
    REFUSED(em_store_contains(store, "page", &contains), EM_FORKED, "forked");
    OK(em_object_close(page));
}

static void serve(void)
{
    struct {
        pid_t process;
        int requests, answers;
        unsigned long serves;
    } workers[GENERATIONS * WORKERS];
    int count = 0;
    OK(em_store_open(getenv("EVERMAP_STORE"), NULL, &store));
    OK(em_object_open(store, "page", EM_READ, NULL, &page));
    for (int generation = 0; generation < GENERATIONS; generation++) {
        unsigned long serves = number(page);
        for (int i = 0; i < WORKERS; i++, count++) {
            int requests[2], answers[2];
            CHECK(pipe(requests) == 0 && pipe(answers) == 0);
            pid_t worker = fork();
            CHECK(worker >= 0);
            if (worker == 0) {
                /* The server owns the ends of its own and of older workers. */
                close(requests[1]);
                close(answers[0]);
                for (int other = 0; other < count; other++) {
                    close(workers[other].requests);
                    close(workers[other].answers);
                }
                work(requests[0], answers[1]);
                _exit(0);
            }
            close(requests[0]);
            close(answers[1]);
            workers[count].process = worker;
            workers[count].requests = requests[1];
            workers[count].answers = answers[0];
            workers[count].serves = serves;
        }
        for (int request = 0; request < REQUESTS; request++) {
            for (int i = 0; i < count; i++) {
                unsigned long answer;
                CHECK(write(workers[i].requests, "?", 1) == 1);
                CHECK(read(workers[i].answers, &answer, sizeof answer) == sizeof answer);
                CHECK(answer == workers[i].serves);
            }
        }
        /* The server moves to a newer page and leaves the older one to its workers. */
        bool changed = false;
        for (int tries = 0; !changed && tries < 10000; tries++) {
            OK(em_refresh(page, &changed));
            if (!changed) {
                poll(NULL, 0, 1);
            }
        }
        CHECK(changed && number(page) > serves);
    }
    for (int i = 0; i < count; i++) {
        int status;
        close(workers[i].requests);
        CHECK(waitpid(workers[i].process, &status, 0) == workers[i].process);
        CHECK(status == 0);
    }
    OK(em_object_close(page));
    OK(em_store_close(store));
    printf("%d workers served the page of their generation\n", count);
}

int main(int arguments, char **argument)
{
    CHECK(arguments == 2);
    if (strcmp(argument[1], "serve") == 0) {
        serve();
        return 0;
    }
    if (strcmp(argument[1], "make") == 0) {
        make();
    } else {
        write_until_told();
    }
    OK(em_object_close(page));
    OK(em_store_close(store));
    return 0;
}
