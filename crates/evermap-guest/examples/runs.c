/* A linked list that grows by one node in each run. The next run finds it with its pointers. */

#include <nvheap.h>
#include <stdio.h>
#include <time.h>

struct run {
    struct run *before;
    long number;
    long long at;
};

struct runs {
    struct run *last;
    long count;
};

static int fail(void) {
    fprintf(stderr, "runs: %s\n", nverror());
    return 1;
}

int main(void) {
    struct runs *runs = nvread("runs", NULL);
    if (runs == NULL) {
        if ((runs = nvmalloc("runs", sizeof *runs)) == NULL) return fail();
        *runs = (struct runs){NULL, 0};
    }
    struct run *run = nvmalloc(NULL, sizeof *run);
    if (run == NULL) return fail();
    *run = (struct run){runs->last, ++runs->count, (long long)time(NULL)};
    runs->last = run;
    if (nvcommit() != 0) return fail();

    for (run = runs->last; run != NULL; run = run->before)
        printf("run %ld, %lld s after 1970\n", run->number, run->at);
    return 0;
}
