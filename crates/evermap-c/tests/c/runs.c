/*
 * Counts its runs, in an object of fastio.h and in a heap of nvheap.h.
 *
 *     runs    (EVERMAP_STORE and EVERMAP_APPLICATION)
 */
#include "check.h"

#include <fastio.h>
#include <nvheap.h>

struct run {
    struct run *before;
    int number;
};

int main(void)
{
    if (p_create("runs") != 0)
        CHECK(em_last_error() == EM_ALREADY_EXISTS);
    if (p_map("runs") == NULL) {
        fprintf(stderr, "%s: %s\n", em_status_name(em_last_error()), em_last_error_message());
        FAILS(p_delete("runs"), -1, EM_OTHER_APPLICATION, "runs");
        return 3;
    }
    struct run *before = get_prime_node("runs"), *run = p_malloc("runs", sizeof *run);
    CHECK(run != NULL);
    run->before = before;
    run->number = before == NULL ? 1 : before->number + 1;
    CHECK(set_prime_node("runs", run) == 0);
    int length = 0;
    for (struct run *at = run; at != NULL; at = at->before)
        length++;
    CHECK(length == run->number);
    CHECK(p_unmap("runs") == 0);

    size_t size = sizeof *run;
    struct run *newest = nvread("newest", &size), *next = nvmalloc(NULL, sizeof *next);
    CHECK(next != NULL && size == sizeof *run);
    next->before = NULL;
    next->number = 1;
    if (newest == NULL) {
        CHECK(em_last_error() == EM_NOT_FOUND);
        newest = nvmalloc("newest", sizeof *newest);
        CHECK(newest != NULL);
        newest->before = NULL;
        newest->number = 0;
    }
    next->before = newest->before;
    newest->before = next;
    newest->number++;
    int number = newest->number, chain = 0;
    for (struct run *at = newest->before; at != NULL; at = at->before)
        chain++;
    CHECK(chain == number && nvcommit() == 0);
    newest->number = 1000; /* not committed */
    printf("%d %d\n", length, number);
    return 0;
}
