// A word index that is kept between runs: in which lines of which text does a word stand?
//
//     word_index STORE add FILE...     reads texts and adds their words, in one commit a file
//     word_index STORE find WORD...    looks words up, in a snapshot
//     word_index STORE top N           the N words that stand in most lines
//
// The index is a standard unordered_map of strings to vectors of ints. Nothing of it is parsed or
// built when the next process opens it: it is there, at the addresses it was built at.

#include <algorithm>
#include <cctype>
#include <evermap.hpp>
#include <fstream>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using lines = evermap::vector<int>;

struct word_index {
  evermap::unordered_map<evermap::string, lines> words;
  int lines_read = 0;
};

void add(evermap::session& session, const char* path) {
  std::ifstream text(path);
  if (!text) {
    throw std::runtime_error(std::string("cannot read ") + path);
  }
  auto& index = session.find_or_make_root<word_index>();
  std::string line;
  evermap::string word(session.get_allocator<char>());
  while (std::getline(text, line)) {
    ++index.lines_read;
    line.push_back(' ');
    for (const char letter : line) {
      if (std::isalpha(static_cast<unsigned char>(letter))) {
        word.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(letter))));
      } else if (!word.empty()) {
        lines& found = index.words[word];
        if (found.empty() || found.back() != index.lines_read) {
          found.push_back(index.lines_read);
        }
        word.clear();
      }
    }
  }
  // The string on the stack has its block in the object: it is given back before the commit.
  word.shrink_to_fit();
  session.commit();
}

void find(const word_index& index, std::string_view wanted) {
  const evermap::string word(wanted, evermap::process_heap);
  const auto found = index.words.find(word);
  std::cout << wanted << ":";
  if (found == index.words.end()) {
    std::cout << " not there";
  } else {
    for (const int line : found->second) {
      std::cout << " " << line;
    }
  }
  std::cout << "\n";
}

void top(const word_index& index, std::size_t count) {
  std::vector<std::pair<std::size_t, std::string_view>> all;
  for (const auto& [word, found] : index.words) {
    all.emplace_back(found.size(), word);
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  all.resize(std::min(count, all.size()));
  for (const auto& [times, word] : all) {
    std::cout << word << " " << times << "\n";
  }
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() < 3) {
    std::cerr << "usage: word_index STORE add FILE... | find WORD... | top N\n";
    return 2;
  }
  evermap::store store = evermap::store::open_or_create(arguments[0]);
  if (arguments[1] == "add") {
    evermap::session session = store.write_or_create("words");
    for (std::size_t i = 2; i < arguments.size(); ++i) {
      add(session, arguments[i].c_str());
    }
    session.close();
    return 0;
  }
  evermap::snapshot snapshot = store.read("words");
  const auto* index = snapshot.root<word_index>();
  if (index == nullptr) {
    std::cerr << "nothing was added yet\n";
    return 1;
  }
  if (arguments[1] == "top") {
    top(*index, std::stoul(arguments[2]));
    return 0;
  }
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    find(*index, arguments[i]);
  }
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    return run(std::vector<std::string>(arguments + 1, arguments + count));
  } catch (const std::exception& failure) {
    std::cerr << "word_index: " << failure.what() << "\n";
    return 1;
  }
}
