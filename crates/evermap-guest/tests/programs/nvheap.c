/*
 * Tests nvheap.h in two runs of a guest. The first run, in a store without a heap, has no
 * arguments, the second has "again". Each prints "ok", or the failed check and exits with 1.
 */

#include <errno.h>
#include <nvheap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG_BYTES 6000000

#define CHECK(condition)                                                                       \
    do {                                                                                     \
        if (!(condition)) {                                                                   \
            printf("line %d: %s (%s; %s)\n", __LINE__, #condition, strerror(errno), nverror()); \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

static void first_run(void) {
    size_t size;
    CHECK(nvread("pointer", &size) == NULL && errno == ENOENT);
    char **pointer = nvmalloc("pointer", sizeof *pointer);
    CHECK(pointer != NULL && (uintptr_t)pointer % 16 == 0);
    *pointer = nvmalloc(NULL, 100);
    CHECK(*pointer != NULL);
    strcpy(*pointer, "kept");

    CHECK(nvmalloc("pointer", 1) == NULL && errno == EEXIST);
    CHECK(nvmalloc("", 1) == NULL && errno == EINVAL);
    CHECK(nvread(NULL, NULL) == NULL && errno == EINVAL);
    CHECK(nvmalloc("huge", (size_t)1 << 31) == NULL && errno == ENOMEM);
    CHECK(nvmalloc("huge", (size_t)1 << 30) == NULL && (errno == ENOMEM || errno == EDQUOT));
    CHECK(strlen(nverror()) > 0);

    /* The heap has several regions, apart from the C library's own memory. */
    char *big = nvmalloc("big", BIG_BYTES);
    CHECK(big != NULL);
    memset(big, 42, BIG_BYTES);
    void *own = malloc(1 << 20);
    CHECK((uintptr_t)own >= 0x50000000 && (uintptr_t)big < 0x50000000);
    CHECK(nvcommit() == 0);

    /* Not committed, so lost at the end of the run. */
    strcpy(*pointer, "lost");
    CHECK(nvmalloc("lost", 8) != NULL);
}

static void second_run(void) {
    size_t size;
    char **pointer = nvread("pointer", &size);
    CHECK(pointer != NULL && size == sizeof *pointer && strcmp(*pointer, "kept") == 0);
    CHECK(nvread("lost", NULL) == NULL && errno == ENOENT);
    char *big = nvread("big", &size);
    CHECK(big != NULL && size == BIG_BYTES && big[0] == 42 && big[BIG_BYTES - 1] == 42);

    /* A snapshot has the heap's addresses, and stores to it are discarded. */
    CHECK(nvprotect(NV_SNAPSHOT) == 0);
    CHECK(nvread("pointer", NULL) == pointer && strcmp(*pointer, "kept") == 0);
    strcpy(*pointer, "mine");
    CHECK(nvmalloc("x", 4) == NULL && errno == EROFS);
    CHECK(nvfree("big") == -1 && errno == EROFS);
    CHECK(nvrelease(*pointer) == -1 && errno == EROFS);
    CHECK(nvcommit() == -1 && errno == EROFS);
    CHECK(nvprotect(NV_SNAPSHOT) == 0 && strcmp(*pointer, "mine") == 0);
    CHECK(nvprotect(NV_WRITE) == 0 && strcmp(*pointer, "kept") == 0);
    CHECK(nvprotect(2) == -1 && errno == EINVAL);

    /* A change of the level discards uncommitted changes. */
    CHECK(nvfree("big") == 0 && nvread("big", NULL) == NULL && errno == ENOENT);
    CHECK(nvprotect(NV_SNAPSHOT) == 0 && nvread("big", NULL) == big);
    CHECK(nvprotect(NV_WRITE) == 0 && nvread("big", NULL) == big);

    CHECK(nvrelease(*pointer) == 0);
    CHECK(nvrelease(*pointer) == -1 && errno == EINVAL);
    CHECK(nvrelease(NULL) == 0);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "again") == 0)
        second_run();
    else
        first_run();
    puts("ok");
    return 0;
}
