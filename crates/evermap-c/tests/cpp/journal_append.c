/* journal_append STORE TEXT...: appends entries to the object `journal`, in one commit. */
#include <evermap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "journal.h"

static void fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, em_last_error_message());
    exit(1);
}

int main(int count, char **arguments)
{
    em_store *store;
    em_object *object;
    uint8_t tag[EM_TAG_BYTES];
    int i;
    if (count < 3 || em_store_open(arguments[1], NULL, &store) != EM_OK)
        fail("opening the store");
    if (em_object_open(store, "journal", EM_WRITE, NULL, &object) != EM_OK)
        fail("opening the object");
    struct journal *journal = em_root(object);
    if (journal == NULL || em_root_tag(object, tag) != EM_OK)
        fail("the root");
    if (memcmp(tag, JOURNAL_TAG, sizeof tag) != 0 || em_root_size(object) < sizeof *journal)
        return fprintf(stderr, "the object is no journal\n"), 1;
    for (i = 2; i < count; i++) {
        struct journal_entry *entry = em_malloc(object, sizeof *entry);
        char *text = em_malloc(object, strlen(arguments[i]) + 1);
        if (entry == NULL || text == NULL)
            fail("allocating");
        entry->next = NULL;
        entry->number = ++journal->entries;
        entry->text = strcpy(text, arguments[i]);
        if (journal->last != NULL)
            journal->last->next = entry;
        else
            journal->first = entry;
        journal->last = entry;
    }
    if (em_commit(object, NULL) != EM_OK)
        fail("committing");
    if (em_object_close(object) != EM_OK || em_store_close(store) != EM_OK)
        fail("closing");
    return 0;
}
