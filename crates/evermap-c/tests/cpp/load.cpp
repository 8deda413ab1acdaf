// Images: bytes by each method, owners, wishes, reports, and a class for each failure.
#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <numeric>

#include "check.hpp"

namespace {

std::string content(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

bool same(const evermap::image& image, const std::string& text) {
  return std::equal(image.begin(), image.end(), text.begin(), text.end(),
                    [](std::byte one, char other) { return one == static_cast<std::byte>(other); });
}

constexpr std::array methods{"read", "read-huge", "read-uncached", "mmap", "mmap-huge", "mmap-willneed",
                             "mmap-populate-read", "mmap-populate-write", "mmap-shared", "takeover",
                             "takeover-on-demand", "clone"};

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 2);
  return run_reporting([&] {
    const std::filesystem::path directory = arguments[1];
    const auto path = directory / "load-file";
    std::string bytes((std::size_t{5} << 20) + 77, 'x');
    for (std::size_t at = 0; at < bytes.size(); at++) {
      bytes[at] = static_cast<char>(at * 31 + (at >> 12));
    }
    std::ofstream(path, std::ios::binary) << bytes;

    for (const char* method : methods) {
      // The file does not change during the test.
      evermap::loader loader = evermap::loader(path).method(method).may_map();
      try {
        evermap::image image = loader.load();
        CHECK(same(image, bytes) && image.size() == bytes.size() && !image.empty());
        std::byte* writable = image.writable_data();
        CHECK(writable == image.data());
        writable[bytes.size() - 1] ^= std::byte{1};
        image.wait();
        CHECK(image[bytes.size() - 1] == (static_cast<std::byte>(bytes.back()) ^ std::byte{1}));
        CHECK(image.report().method == std::string(method) && image.serves_system_calls());
        CHECK(image.progress().loaded_bytes == bytes.size() && image.progress().total_bytes == bytes.size());
        CHECK(says(image.why(), "requested by name") && image.why().find(method) == 0);
        const em_residency residency = image.residency();
        CHECK(residency.private_bytes + residency.file_bytes + residency.swapped_bytes > 0);
        image.advise(0, bytes.size(), EM_ADVICE_SEQUENTIAL);
        image.check();
        const evermap::image part = loader.range(4097, 100).load();
        CHECK(same(part, bytes.substr(4097, 100)));
      } catch (const evermap::refused& why) {
        std::cerr << "SKIPPED: " << why.what() << "\n";
      }
      CHECK(content(path) == bytes);
    }

    evermap::image image(path);
    image.want(10, 10);
    image.ensure(0, bytes.size());
    CHECK(says(CHECK_THROWS(evermap::out_of_bounds, image.ensure(1, bytes.size())), "ask for less"));
    CHECK_THROWS(evermap::out_of_bounds, image.want(bytes.size(), 1));
    CHECK_THROWS(evermap::out_of_bounds, image.advise(bytes.size(), 1, EM_ADVICE_NEVER));
#ifdef __cpp_lib_span
    CHECK(image.bytes().size() == bytes.size() && image.get(7, 3).data() == image.data() + 7);
    image.writable_bytes().back() ^= std::byte{1};
    image.writable_bytes().back() ^= std::byte{1};
    CHECK_THROWS(evermap::out_of_bounds, image.get(bytes.size(), 1));
#endif
    evermap::image moved = std::move(image);
    CHECK(same(moved, bytes) && image.handle() == nullptr && image.empty());
    CHECK_THROWS(evermap::closed, image.wait());
    CHECK_THROWS(evermap::closed, image.writable_data());
    image = std::move(moved);
    CHECK(same(image, bytes));
    image.close();
    image.close();
    CHECK_THROWS(evermap::closed, image.why());

    evermap::loader wishes(path);
    wishes.touched(0.5).written(0).order(EM_LOAD_ORDER_RANDOM).latency(EM_LOAD_LATENCY_FINISH);
    wishes.cache(EM_LOAD_CACHE_KEEP).fork(EM_LOAD_FORK_WITHOUT).threads(2).memory_max(std::uint64_t{1} << 30);
    CHECK(same(wishes.load(), bytes));
    const evermap::load_facts facts = wishes.may_map().probe();
    CHECK(facts.bytes == bytes.size() && facts.choices.size() > 1 && facts.choices.front().maps_the_file);
    CHECK(facts.choices.back().method == "read" && !facts.choices.back().why.empty());
    CHECK(facts.choices.back().threads >= 1);

    wishes = evermap::loader(path).memory_max(1 << 20);
    CHECK(says(CHECK_THROWS(evermap::no_memory, wishes.load()), "allow mapping"));
    CHECK_THROWS(evermap::no_memory, wishes.probe());
    wishes = evermap::loader(path).method("mmap");
    CHECK(says(CHECK_THROWS(evermap::refused, wishes.load()), "may_map"));
    wishes = evermap::loader(path).method("none");
    CHECK(says(CHECK_THROWS(evermap::invalid_argument, wishes.load()), "takeover"));
    wishes = evermap::loader(path).range(bytes.size() + 1);
    CHECK_THROWS(evermap::out_of_bounds, wishes.load());
    CHECK_THROWS(evermap::not_a_file, evermap::image{directory});
    CHECK_THROWS(evermap::io_error, evermap::image{directory / "missing"});

    const std::vector<evermap::image> all =
        evermap::load_all({evermap::loader(path), evermap::loader(path).range(10, 20).method("read")});
    CHECK(all.size() == 2 && same(all[0], bytes) && same(all[1], bytes.substr(10, 20)));
    CHECK(evermap::load_all({}).empty());
    CHECK_THROWS(evermap::io_error, evermap::load_all({evermap::loader(path), evermap::loader(directory / "missing")}));

    const auto recorded = directory / "load-recording";
    std::filesystem::remove(recorded);
    evermap::image used = evermap::loader(path).record().load();
    if (used.report().recording == EM_RECORDING_MADE) {
      CHECK(used[5] == static_cast<std::byte>(bytes[5]));
      const em_recording recording = used.recording(recorded);
      CHECK(recording.windows_touched == 1 && recording.written_permille == EM_LOAD_NONE);
      CHECK(evermap::loader(path).replay(recorded).load().report().recording == EM_RECORDING_REPLAYED);
      CHECK(evermap::loader(path).recording(recorded).load().report().recording == EM_RECORDING_REPLAYED);
    } else {
      std::cerr << "SKIPPED: " << used.why() << "\n";
    }
    CHECK_THROWS(evermap::invalid_argument, all[0].recording());

    evermap::rules rules = evermap::rules::parse("[[file]]\npattern = 'load-*'\nmethod = 'mmap'\nunchanging = true\n");
    CHECK(rules.match(path) && !rules.match("elsewhere"));
    CHECK_THROWS(evermap::refused, evermap::loader(path).by(rules).load());
    CHECK(evermap::loader(path).by(rules, true).load().report().method == std::string("mmap"));
    const evermap::rules kept = std::move(rules);
    CHECK(kept.match(path));
    CHECK_THROWS(evermap::closed, rules.match(path));
    CHECK(says(CHECK_THROWS(evermap::malformed, evermap::rules::parse("file = 7")), "rules"));
    CHECK_THROWS(evermap::io_error, evermap::rules::read(directory / "missing"));

    evermap::image before = evermap::loader(path).method("read").load();
    std::filesystem::resize_file(path, 100);
    CHECK(says(CHECK_THROWS(evermap::source_changed, before.check()), "truncated"));
    CHECK(same(before, bytes));
  });
}
