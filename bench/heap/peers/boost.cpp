// Boost.Interprocess: a tree in a managed_mapped_file, linked by its relative pointers.
//
// boost build boost FOLDER NODES THREADS
// boost open  boost FOLDER NODES
#include <boost/interprocess/managed_mapped_file.hpp>
#include <boost/interprocess/offset_ptr.hpp>
#include <sys/mman.h>
#include <thread>

#include "common.hpp"

namespace ipc = boost::interprocess;

struct Node {
    std::uint64_t key;
    ipc::offset_ptr<Node> left, right;
    std::uint64_t value;
    std::uint64_t pad[4];
};
static_assert(sizeof(Node) == 64);

static Node *new_node(ipc::managed_mapped_file &file, std::uint64_t key) {
    Node *node = new (file.allocate(sizeof(Node))) Node;
    node->key = key;
    node->value = value_of(key);
    for (auto &word : node->pad) word = key;
    return node;
}

static Node *subtree(ipc::managed_mapped_file &file, std::uint64_t first, std::uint64_t count) {
    if (count == 0) return nullptr;
    std::uint64_t left = count / 2;
    Node *node = new_node(file, first + left);
    node->left = subtree(file, first, left);
    node->right = subtree(file, first + left + 1, count - left - 1);
    return node;
}

static Node *build_two(ipc::managed_mapped_file &file, std::uint64_t nodes) {
    std::uint64_t left = nodes / 2;
    Node *root = new_node(file, left), *second = nullptr;
    std::thread other([&] { second = subtree(file, left + 1, nodes - left - 1); });
    root->left = subtree(file, 0, left);
    other.join();
    root->right = second;
    return root;
}

static std::uint64_t walk(const Node *node) {
    return node ? node->value + walk(node->left.get()) + walk(node->right.get()) : 0;
}

int main(int count, char **words) {
    auto start = Clock::now();
    if (count < 5) fail("usage: boost build|open boost FOLDER NODES [THREADS]");
    std::string path = std::string(words[3]) + "/nodes.boost";
    std::uint64_t nodes = std::strtoull(words[4], nullptr, 10);
    if (std::strcmp(words[1], "open") == 0) {
        ipc::managed_mapped_file file(ipc::open_only, path.c_str());
        Node *root = file.find<ipc::offset_ptr<Node>>("root").first->get();
        measure_walks(start, nodes, root->value, [&] { return walk(root); });
        return 0;
    }
    // An open file cannot grow, so it has room for all nodes and their headers.
    std::size_t bytes = nodes * 112 + (64 << 20);
    ipc::managed_mapped_file file(ipc::create_only, path.c_str(), bytes);
    bool two = count > 5 && std::strtoul(words[5], nullptr, 10) == 2;
    double resident = resident_bytes();
    start = Clock::now();
    Node *root = two ? build_two(file, nodes) : subtree(file, 0, nodes);
    double build_us = us_since(start);
    resident = resident_bytes() - resident;
    file.construct<ipc::offset_ptr<Node>>("root")(root);
    // flush() only schedules the writes.
    if (msync(file.get_address(), file.get_size(), MS_SYNC) != 0) fail("msync");
    double durable_us = us_since(start);
    if (walk(root) != sum_of(nodes)) fail("the tree is not what was built");
    print_built(build_us, durable_us, resident);
}
