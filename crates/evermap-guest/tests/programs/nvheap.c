/*
 * What nvheap.h promises, as two runs of a guest: the first, in a store without a heap, is called
 * without arguments, the second with "again". Each prints "ok"; a promise that is not kept is
 * printed, and the run ends with 1.
 */

#include <errno.h>
#include <nvheap.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG_BYTES 6000000

#define CHECK(promise)                                                                       \
    do {                                                                                     \
        if (!(promise)) {                                                                    \
            printf("line %d: %s (%s; %s)\n", __LINE__, #promise, strerror(errno), nverror()); \
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

    /* Several regions; and the C library's own memory is elsewhere. */
    char *big = nvmalloc("big", BIG_BYTES);
    CHECK(big != NULL);
    memset(big, 42, BIG_BYTES);
    void *own = malloc(1 << 20);
    CHECK((uintptr_t)own >= 0x50000000 && (uintptr_t)big < 0x50000000);
    CHECK(nvcommit() == 0);

    /* Forgotten with the run. */
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

    /* A snapshot is where the heap was, and what is stored there is forgotten. */
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

    /* Nor is what was not committed there after a change of the level. */
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
