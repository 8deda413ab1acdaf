// Transfers: reports, options, callbacks, and a class for each failure.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <future>
#include <iterator>
#include <stdexcept>

#include "check.hpp"

namespace transfer = evermap::transfer;

namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

struct stop_it : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  return run_reporting([&] {
    const std::filesystem::path directory = arguments[1];
    const auto from = directory / "transfer-from", to = directory / "transfer-to";
    const std::string bytes(300'000, 'x');
    std::ofstream(from, std::ios::binary) << bytes;

    const transfer::report plain = transfer::copy(from, to);
    CHECK(plain.data_bytes == bytes.size() && content(to) == bytes);
    CHECK(!plain.explained.empty() && plain.explained.front().kind == EM_EXPLAINED_USED);

    transfer::options options;
    options.engine = "read-write";
    options.verify = true;
    std::uint64_t told = 0;
    options.progress = [&](std::uint64_t arrived, std::uint64_t total) {
      told = arrived;
      return total == bytes.size();
    };
    const transfer::report verified = transfer::copy(from, to, options);
    CHECK(verified.verified != 0 && told == bytes.size());
    CHECK(verified.explained.front().what == "read-write");
    CHECK(verified.explained.front().bytes == bytes.size());

    // An exception of a callback is rethrown, though it has passed through the library.
    options.progress = [](std::uint64_t, std::uint64_t) -> bool { throw stop_it("enough"); };
    CHECK(says(CHECK_THROWS(stop_it, transfer::copy(from, to, options)), "enough"));

    const volatile std::sig_atomic_t yes = 1;
    options.progress = nullptr;
    options.cancelled = &yes;
    CHECK_THROWS(evermap::cancelled, transfer::copy(from, to, options));
    options.cancelled = nullptr;
    options.engine = "none";
    CHECK(says(CHECK_THROWS(evermap::invalid_argument, transfer::copy(from, to, options)), "splice"));
    CHECK_THROWS(evermap::io_error, transfer::copy(directory / "missing", to));

    transfer::receiver receiver("127.0.0.1:0");
    const auto received = directory / "transfer-received";
    auto other = std::async(std::launch::async, [&] { return receiver.next(received); });
    transfer::options sending;
    sending.verify = true;
    const transfer::report sent = transfer::send(from, receiver.address(), sending);
    CHECK(sent.published != 0 && sent.verified != 0 && other.get().data_bytes == bytes.size());
    CHECK(sent.explained.front().kind == EM_EXPLAINED_CONNECTION && content(received) == bytes);
    const std::string address = receiver.address();
    transfer::options soon;
    soon.wait = std::chrono::milliseconds(50);
    CHECK_THROWS(evermap::peer, receiver.next(received, soon));
    transfer::receiver moved = std::move(receiver);
    moved.close();
    moved.close();
    CHECK_THROWS(evermap::closed, moved.next(received));
    CHECK_THROWS(evermap::peer, transfer::send(from, address));
    const std::string socket = "unix:" + (directory / "transfer-socket").string();
    CHECK_THROWS(evermap::peer, transfer::receive(socket, received, soon));

    int ends[2];
    CHECK(pipe(ends) == 0);
    const int source = open(from.c_str(), O_RDONLY);
    transfer::options part;
    part.begin_bytes = 10;
    part.length_bytes = 100;
    CHECK(transfer::move(source, ends[1], part).data_bytes == 100);
    part.engine = "reflink";
    CHECK_THROWS(evermap::refused, transfer::move(source, ends[1], part));
    part.engine.clear();
    part.begin_bytes = bytes.size();
    const int target = open(to.c_str(), O_RDWR);
    CHECK_THROWS(evermap::source_changed, transfer::move(source, target, part));
    for (const int descriptor : {ends[0], ends[1], source, target}) {
      CHECK(close(descriptor) == 0);
    }
  });
}
