/*
 * Checks, before it uses the library, if the given addresses are reserved.
 *
 *     before_main FIRST END    (hexadecimal; EVERMAP_RESERVE names stores)
 */
#include "check.h"

int main(int arguments, char **argument)
{
    CHECK(arguments == 3);
    unsigned long long first = strtoull(argument[1], NULL, 16);
    unsigned long long end = strtoull(argument[2], NULL, 16);
    unsigned long long from, to;
    char line[1000];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%llx-%llx", &from, &to) == 2 && from <= first && to > first)
            first = to;
    fclose(maps);
    bool kept = first >= end;
    /* Linkers take only referenced parts of a static library, so refer to it. */
    CHECK(em_store_open(NULL, NULL, NULL) == EM_INVALID_ARGUMENT);
    puts(kept ? "kept" : "free");
    return 0;
}
