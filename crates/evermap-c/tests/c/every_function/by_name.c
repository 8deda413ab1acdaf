/* Objects and blocks by name: fastio.h and nvheap.h. */
#include "parts.h"

#include <fastio.h>
#include <nvheap.h>

void fast_io(void)
{
    CHECK(p_reserve() == 0);
    CHECK(p_create("list") == 0);
    FAILS(p_create("list"), -1, EM_ALREADY_EXISTS, "list");
    FAILS(p_malloc("list", 8), NULL, EM_CLOSED, "p_map");
    FAILS(p_map("none"), NULL, EM_NOT_FOUND, "none");
    char *first = p_map("list");
    CHECK(first != NULL && p_map("list") == first && p_map_readonly("list") == first);
    CHECK(get_prime_node("list") == NULL);
    struct node *node = p_malloc("list", sizeof *node);
    CHECK(node != NULL && (char *)node > first);
    node->value = 7;
    CHECK(set_prime_node("list", node) == 0 && get_prime_node("list") == node);
    FAILS(set_prime_node("list", (char *)node + 8), -1, EM_BAD_ROOT, "not an allocated block");
    p_free("list", p_malloc("list", 100));
    p_free("list", NULL);
    CHECK(p_commit("list") == 0);
    CHECK(p_extend("list", 4 << 20) == 0);
    CHECK(p_reduce("list", 1 << 20) == 0);
    FAILS(p_reduce("list", 1 << 30), -1, EM_OUT_OF_BOUNDS, "were asked for");
    node->value = 8;
    FAILS(p_delete("list"), -1, EM_BUSY, "list");
    CHECK(p_unmap("list") == 0);
    FAILS(p_unmap("list"), -1, EM_CLOSED, "p_map");

    CHECK(p_map_readonly("list") == first);
    CHECK(get_prime_node("list") == node && node->value == 8); /* unmapping committed */
    FAILS(p_malloc("list", 8), NULL, EM_READ_ONLY, "reading");
    FAILS(p_commit("list"), -1, EM_READ_ONLY, "reading");
    FAILS(p_extend("list", 8), -1, EM_READ_ONLY, "reading");
    FAILS(p_reduce("list", 8), -1, EM_READ_ONLY, "reading");
    CHECK(p_unmap("list") == 0);

    /* Closing the object by its handle has unmapped it. */
    CHECK(p_map("list") != NULL);
    OK(em_object_close(em_object_of(get_prime_node("list"))));
    FAILS(get_prime_node("list"), NULL, EM_CLOSED, "closed");
    CHECK(p_delete("list") == 0);
    FAILS(p_delete("list"), -1, EM_NOT_FOUND, "list");
}

void nv_heap(void)
{
    size_t size = 0;
    FAILS(nvread("first", &size), NULL, EM_NOT_FOUND, "first");
    char *first = nvmalloc("first", 100);
    CHECK(first != NULL && nvread("first", &size) == first && size == 100);
    CHECK(nvread("first", NULL) == first);
    FAILS(nvmalloc("first", 1), NULL, EM_ALREADY_EXISTS, "first");
    FAILS(nvmalloc("", 1), NULL, EM_INVALID_NAME, "1 to 255");
    FAILS(nvmalloc("huge", (size_t)1 << 60), NULL, EM_BAD_ALLOCATION, "larger");
    strcpy(first, "kept");
    char *anonymous = nvmalloc(NULL, 50);
    CHECK(anonymous != NULL && anonymous != first);
    em_free(em_object_of(anonymous), anonymous);
    /* Enough names to enlarge the table several times. */
    for (int i = 0; i < 1000; i++) {
        char name[20];
        sprintf(name, "number %d", i);
        int *number = nvmalloc(name, sizeof *number);
        CHECK(number != NULL);
        *number = i;
    }
    for (int i = 0; i < 1000; i += 2) {
        char name[20];
        sprintf(name, "number %d", i);
        CHECK(nvfree(name) == 0);
        FAILS(nvfree(name), -1, EM_NOT_FOUND, name);
    }
    CHECK(nvcommit() == 0);
    for (int i = 1; i < 1000; i += 2) {
        char name[20];
        sprintf(name, "number %d", i);
        int *number = nvread(name, &size);
        CHECK(number != NULL && *number == i && size == sizeof *number);
    }
    /* The heap is an ordinary object, and opens again after its handle was closed. */
    OK(em_object_close(em_object_of(first)));
    CHECK(nvread("first", NULL) == first && strcmp(first, "kept") == 0);
}
