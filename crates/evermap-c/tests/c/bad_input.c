/*
 * Makes one forbidden call; the caller checks how the program ends and what it prints.
 *
 *     bad_input STORE WHAT    (EVERMAP_STORE names STORE)
 */
#include "check.h"

#include <fastio.h>

static em_store *store;
static em_object *object;

static void double_free(void)
{
    void *block = em_malloc(object, 100);
    em_free(object, block);
    em_free(object, block);
}

static void foreign_pointer(void)
{
    void *foreign = malloc(100);
    fprintf(stderr, "foreign is %p\n", foreign);
    em_free(object, foreign);
}

static void inside_of_a_block(void)
{
    em_free(object, (char *)em_malloc(object, 100) + 16);
}

static void of_another_object(void)
{
    em_object *other;
    OK(em_object_create(store, "other"));
    OK(em_object_open(store, "other", EM_WRITE, NULL, &other));
    em_free(object, em_malloc(other, 100));
}

static void realloc_of_foreign(void)
{
    (void)em_realloc(object, malloc(100), 200);
}

static void free_after_close(void)
{
    void *block = em_malloc(object, 100);
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    em_free(object, block);
}

static void free_in_a_reader(void)
{
    void *block = em_malloc(object, 100);
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    OK(em_object_open(store, "object", EM_READ, NULL, &object));
    em_free(object, block);
}

static void free_without_an_object(void)
{
    em_free(NULL, em_malloc(object, 100));
}

static void store_in_a_reader(void)
{
    char *block = em_malloc(object, 100);
    OK(em_commit(object, NULL));
    OK(em_object_close(object));
    OK(em_object_open(store, "object", EM_READ, NULL, &object));
    CHECK(em_object_of(block) == object);
    block[0] = 1;
}

static void look_into_a_handle(void)
{
    fprintf(stderr, "%d\n", *(volatile char *)object);
}

static void p_free_of_unmapped(void)
{
    int here;
    p_free("object", &here);
}

static void p_free_of_foreign(void)
{
    int here;
    OK(em_object_close(object));
    CHECK(p_map("object") != NULL);
    p_free("object", &here);
}

static const struct {
    const char *name;
    void (*call)(void);
} deeds[] = {
    {"double_free", double_free},
    {"foreign_pointer", foreign_pointer},
    {"inside_of_a_block", inside_of_a_block},
    {"of_another_object", of_another_object},
    {"realloc_of_foreign", realloc_of_foreign},
    {"free_after_close", free_after_close},
    {"free_in_a_reader", free_in_a_reader},
    {"free_without_an_object", free_without_an_object},
    {"store_in_a_reader", store_in_a_reader},
    {"look_into_a_handle", look_into_a_handle},
    {"p_free_of_unmapped", p_free_of_unmapped},
    {"p_free_of_foreign", p_free_of_foreign},
};

int main(int arguments, char **argument)
{
    CHECK(arguments == 3);
    OK(em_store_open_or_create(argument[1], NULL, &store));
    OK(em_object_create(store, "object"));
    OK(em_object_open(store, "object", EM_WRITE, NULL, &object));
    for (size_t i = 0; i < sizeof deeds / sizeof deeds[0]; i++) {
        if (strcmp(deeds[i].name, argument[2]) == 0) {
            deeds[i].call();
            puts("went on");
            return 0;
        }
    }
    puts("no such deed");
    return 0;
}
