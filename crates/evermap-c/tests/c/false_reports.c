/* Counts numbers and texts that look like pointers out of the object.
 *
 *     false_reports STORE WORDS HEAP_MB FILE...
 *
 * WORDS of each kind are committed to a new object, in a program with a heap of HEAP_MB; then the
 * words of the files, each padded to 8 bytes. Prints one line per kind. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

/* Small enough to come from the heap that grows. */
#define BLOCK_BYTES 100000
#define BLOCKS_MAX 100000

static uint64_t state = 0x5eed;

/* splitmix64 */
static uint64_t next_random(void)
{
    uint64_t z = (state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t bits_64(void) { return next_random(); }
static uint64_t bits_47(void) { return next_random() >> 17; }
static uint64_t bits_32(void) { return next_random() >> 32; }
static uint64_t pair(void) { return next_random() >> 44 | (next_random() >> 44) << 32; }
static uint64_t real(void)
{
    double number = (double)(int64_t)next_random() / 1000.0;
    uint64_t word;
    memcpy(&word, &number, sizeof word);
    return word;
}

static void count(const em_foreign_pointer *pointer, void *context)
{
    (void)pointer;
    ++*(uint64_t *)context;
}

/* Commits words in a new object. Reports of one commit are counted up to 1,000. */
static void commit(em_store *store, const char *kind, const uint64_t *words, size_t number)
{
    em_object *object;
    uint64_t reported = 0;
    OK(em_object_create(store, kind));
    OK(em_object_open(store, kind, EM_WRITE, NULL, &object));
    uint64_t *block = em_malloc(object, number * sizeof *block);
    CHECK(block != NULL);
    memcpy(block, words, number * sizeof *block);
    em_on_foreign_pointer(count, &reported);
    OK(em_commit(object, NULL));
    printf("%s: %llu of %zu\n", kind, (unsigned long long)reported, number);
    OK(em_object_close(object));
}

/* Reads the words of some files, padded with zeros. */
static size_t words_of(char **files, int number, uint64_t *words, size_t max)
{
    size_t found = 0;
    for (int i = 0; i < number; i++) {
        FILE *file = fopen(files[i], "r");
        char text[256];
        CHECK(file != NULL);
        while (found < max && fscanf(file, "%255s", text) == 1) {
            words[found] = 0;
            memcpy(&words[found++], text, strlen(text) < 8 ? strlen(text) : 8);
        }
        fclose(file);
    }
    return found;
}

int main(int arguments, char **argument)
{
    CHECK(arguments >= 4);
    size_t number = (size_t)atol(argument[2]), blocks = (size_t)atol(argument[3]) * 10;
    static const struct {
        const char *kind;
        uint64_t (*next)(void);
    } kinds[] = {{"random, 64 bits", bits_64}, {"random, 47 bits", bits_47},
                 {"random, 32 bits", bits_32}, {"pairs of 20-bit numbers", pair},
                 {"doubles", real}};
    static char *heap[BLOCKS_MAX];
    for (size_t i = 0; i < blocks && i < BLOCKS_MAX; i++) {
        heap[i] = malloc(BLOCK_BYTES);
        CHECK(heap[i] != NULL);
        memset(heap[i], 1, BLOCK_BYTES);
    }
    uint64_t *words = malloc(number * sizeof *words);
    CHECK(words != NULL);
    em_store *store;
    OK(em_store_open_or_create(argument[1], NULL, &store));
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        for (size_t i = 0; i < number; i++)
            words[i] = kinds[kind].next();
        commit(store, kinds[kind].kind, words, number);
    }
    size_t found = words_of(argument + 4, arguments - 4, words, number);
    if (found > 0)
        commit(store, "words of files", words, found);
    OK(em_store_close(store));
    return 0;
}
