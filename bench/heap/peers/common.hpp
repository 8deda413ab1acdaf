// Shared by the peers' programs: the tree's numbers, clocks, and output of figures.
#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unistd.h>

using Clock = std::chrono::steady_clock;

inline double us_since(Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

inline std::uint64_t value_of(std::uint64_t key) { return key * 3; }

inline std::uint64_t sum_of(std::uint64_t nodes) {
    std::uint64_t sum = 0;
    for (std::uint64_t key = 0; key < nodes; ++key) sum += value_of(key);
    return sum;
}

inline double resident_bytes() {
    long all = 0, resident = 0;
    if (FILE *file = std::fopen("/proc/self/statm", "r")) {
        if (std::fscanf(file, "%ld %ld", &all, &resident) != 2) resident = 0;
        std::fclose(file);
    }
    return double(resident) * double(sysconf(_SC_PAGESIZE));
}

[[noreturn]] inline void fail(const std::string &why) {
    std::fprintf(stderr, "%s\n", why.c_str());
    std::exit(1);
}

inline void print_built(double build_us, double durable_us, double resident) {
    std::printf("build_us %f\ndurable_us %f\nresident_bytes %f\n", build_us, durable_us, resident);
}

// Walks twice after reading the first node, as the other children do.
template <class Walk>
void measure_walks(Clock::time_point start, std::uint64_t nodes, std::uint64_t one, Walk walk) {
    double one_us = us_since(start);
    auto before = Clock::now();
    std::uint64_t first = walk();
    double first_us = us_since(before);
    before = Clock::now();
    std::uint64_t second = walk();
    double second_us = us_since(before);
    if (one != value_of(nodes / 2) || first != sum_of(nodes) || second != first)
        fail("the nodes are not what was built");
    std::printf("one_us %f\nfirst_us %f\nsecond_us %f\n", one_us, first_us, second_us);
}
