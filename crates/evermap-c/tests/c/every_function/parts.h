/* Parts of the program every_function. main() runs them in order: later parts use what earlier ones
 * left in the store. */
#ifndef PARTS_H
#define PARTS_H

#define _DEFAULT_SOURCE
#include "../check.h"

struct node {
    struct node *next;
    uint64_t value;
};

/* Callback of a check: checks the finding and increments the int at `context`. */
bool count(const em_finding *finding, void *context);

void stores(const char *path);
void objects(const char *path);
void audits(const char *path);
void copies_and_moves(const char *path);
void protection(const char *path);
void sharing(const char *path);
void renamed_store(const char *path);
void pointers_out(const char *path);
void fast_io(void);
void nv_heap(void);

#endif
