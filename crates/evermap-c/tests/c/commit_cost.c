/* The cost of the search for foreign pointers in a commit:
 *
 *     commit_cost STORE PAGES BYTES allow|report ROUNDS
 *
 * BYTES of each page are changed: 8, or 4096. Prints the fastest commit of all rounds. To count
 * instructions:
 *
 *     valgrind --tool=callgrind --toggle-collect=em_commit commit_cost STORE 100 4096 report 2
 *
 * The store must be at addresses that valgrind supports. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

#define PAGE 4096

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int count, char **arguments)
{
    CHECK(count == 6);
    size_t pages = (size_t)atol(arguments[2]), bytes = (size_t)atol(arguments[3]);
    int rounds = atoi(arguments[5]);
    em_store *store;
    em_object *object;
    em_store_options where = EM_STORE_OPTIONS_DEFAULT;
    where.window_base = (uint64_t)0x08 << 40;
    where.window_end = (uint64_t)0x10 << 40;
    OK(em_store_open_or_create(arguments[1], &where, &store));
    em_status made = em_object_create(store, "pages");
    CHECK(made == EM_OK || made == EM_ALREADY_EXISTS);
    em_write_options options = EM_WRITE_OPTIONS_DEFAULT;
    options.durability = EM_DURABILITY_CLOSE;
    options.foreign_pointers =
        strcmp(arguments[4], "allow") == 0 ? EM_FOREIGN_ALLOW : EM_FOREIGN_REPORT;
    OK(em_object_open(store, "pages", EM_WRITE, &options, &object));
    unsigned char *memory = em_aligned_alloc(object, PAGE, pages * PAGE);
    CHECK(memory != NULL);
    memset(memory, 1, pages * PAGE);
    OK(em_reserve(object, 1)); /* commits, uncounted */
    uint64_t shortest = UINT64_MAX;
    for (int round = 0; round < rounds; round++) {
        for (size_t page = 0; page < pages; page++)
            for (size_t at = 0; at < bytes; at += 8) {
                /* Alternates numbers, texts and pointers into the object. */
                uint64_t word = at % 3 == 0 ? page * 512 + at + (size_t)round
                                            : (uint64_t)(size_t)(memory + at) + (size_t)round;
                memcpy(memory + page * PAGE + at, at % 5 == 0 ? "some wor" : (char *)&word, 8);
                memory[page * PAGE + at] = (unsigned char)(round + 1);
            }
        uint64_t began = now();
        OK(em_commit(object, NULL));
        uint64_t took = now() - began;
        shortest = took < shortest ? took : shortest;
    }
    printf("%llu ns\n", (unsigned long long)shortest);
    em_object_close(object);
    em_store_close(store);
    return 0;
}
