// PMDK's libpmemobj: a tree of atomic allocations, linked by its 16-byte pointers.
//
// pmdk build pmdk FOLDER NODES THREADS
// pmdk open  pmdk FOLDER NODES
#include <libpmemobj.h>
#include <thread>

#include "common.hpp"

struct Node {
    std::uint64_t key;
    PMEMoid left, right;
    std::uint64_t value;
    std::uint64_t pad[2];
};
static_assert(sizeof(Node) == 64);

static const std::uint64_t NODE_TYPE = 1;

static int construct(PMEMobjpool *pool, void *place, void *key_of) {
    Node *node = static_cast<Node *>(place);
    std::uint64_t key = *static_cast<std::uint64_t *>(key_of);
    *node = Node{key, OID_NULL, OID_NULL, value_of(key), {key, key}};
    pmemobj_persist(pool, node, sizeof(Node));
    return 0;
}

// Allocating and storing the pointer to the block are one atomic step.
static Node *new_node(PMEMobjpool *pool, PMEMoid *link, std::uint64_t key) {
    if (pmemobj_alloc(pool, link, sizeof(Node), NODE_TYPE, construct, &key) != 0)
        fail(pmemobj_errormsg());
    return static_cast<Node *>(pmemobj_direct(*link));
}

static void subtree(PMEMobjpool *pool, PMEMoid *link, std::uint64_t first, std::uint64_t count) {
    if (count == 0) return;
    std::uint64_t left = count / 2;
    Node *node = new_node(pool, link, first + left);
    subtree(pool, &node->left, first, left);
    subtree(pool, &node->right, first + left + 1, count - left - 1);
}

static void build_two(PMEMobjpool *pool, PMEMoid *link, std::uint64_t nodes) {
    std::uint64_t left = nodes / 2;
    Node *root = new_node(pool, link, left);
    std::thread other([&] { subtree(pool, &root->right, left + 1, nodes - left - 1); });
    subtree(pool, &root->left, 0, left);
    other.join();
}

static std::uint64_t walk(PMEMoid at) {
    if (OID_IS_NULL(at)) return 0;
    const Node *node = static_cast<const Node *>(pmemobj_direct(at));
    return node->value + walk(node->left) + walk(node->right);
}

int main(int count, char **words) {
    auto start = Clock::now();
    if (count < 5) fail("usage: pmdk build|open pmdk FOLDER NODES [THREADS]");
    std::string path = std::string(words[3]) + "/nodes.pmdk";
    std::uint64_t nodes = std::strtoull(words[4], nullptr, 10);
    bool opens = std::strcmp(words[1], "open") == 0;
    std::size_t bytes = nodes * 160 + (64 << 20);
    PMEMobjpool *pool = opens ? pmemobj_open(path.c_str(), "nodes")
                              : pmemobj_create(path.c_str(), "nodes", bytes, 0600);
    if (!pool) fail(pmemobj_errormsg());
    PMEMoid *root = static_cast<PMEMoid *>(pmemobj_direct(pmemobj_root(pool, sizeof(PMEMoid))));
    if (opens) {
        std::uint64_t one = static_cast<const Node *>(pmemobj_direct(*root))->value;
        measure_walks(start, nodes, one, [&] { return walk(*root); });
        return 0;
    }
    bool two = count > 5 && std::strtoul(words[5], nullptr, 10) == 2;
    double resident = resident_bytes();
    start = Clock::now();
    if (two)
        build_two(pool, root, nodes);
    else
        subtree(pool, root, 0, nodes);
    double build_us = us_since(start);
    resident = resident_bytes() - resident;
    if (walk(*root) != sum_of(nodes)) fail("the tree is not what was built");
    // Each step was made durable on its own, as far as the library does that at all.
    print_built(build_us, build_us, resident);
    pmemobj_close(pool);
}
