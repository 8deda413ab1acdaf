// Virtual functions in objects, under address randomisation.
//
//     polymorphic STORE write|read|more|unregistered|unfit

#include "check.hpp"

#include <algorithm>
#include <iterator>
#include <typeinfo>

namespace {

struct shape {
  virtual ~shape() = default;
  virtual double area() const = 0;
  virtual std::string_view kind() const { return "shape"; }
};
struct labelled {
  virtual ~labelled() = default;
  virtual std::string_view label() const = 0;
};
struct circle : shape {
  double radius = 0;
  circle() = default;
  explicit circle(double r) : radius(r) {}
  double area() const override { return 3 * radius * radius; }
  std::string_view kind() const override { return "circle"; }
};
// Two tables, the second one for the second base.
struct sign : shape, labelled {
  evermap::string text;
  sign() = default;
  explicit sign(const char* words) : text(words) {}
  double area() const override { return static_cast<double>(text.size()); }
  std::string_view label() const override { return text; }
};
struct square : circle {
  using circle::circle;
  double area() const override { return radius * radius; }
  std::string_view kind() const override { return "square"; }
};
struct diamond : virtual shape {
  double area() const override { return 0; }
};

struct drawing : evermap::polymorphic<circle, sign, square> {
  evermap::vector<evermap::unique_ptr<shape>> shapes;
  evermap::list<square> squares;
  labelled* labels = nullptr;
};

// Hides the class from the compiler.
const shape& hidden(const shape& s) {
  const shape* volatile p = &s;
  return *p;
}

void fill(evermap::session& session, drawing& d, double size) {
  d.shapes.push_back(session.make_unique<circle>(size));
  auto made = session.make_unique<sign>("a label that does not fit a small string");
  d.labels = made.get();
  d.shapes.push_back(std::move(made));
  d.squares.emplace_back(size);
  d.shapes.push_back(session.make_unique<square>(size));
}

void look(const drawing& d, std::size_t times) {
  CHECK(d.shapes.size() == 3 * times && d.squares.size() == times);
  for (std::size_t i = 0; i < d.shapes.size(); i += 3) {
    CHECK(hidden(*d.shapes[i]).kind() == "circle" && hidden(*d.shapes[i]).area() == 12);
    CHECK(hidden(*d.shapes[i + 1]).kind() == "shape" && hidden(*d.shapes[i + 1]).area() == 40);
    CHECK(hidden(*d.shapes[i + 2]).kind() == "square");
    const shape& first = hidden(*d.shapes[i]);
    CHECK(typeid(first) == typeid(circle));
    CHECK(dynamic_cast<const labelled*>(&hidden(*d.shapes[i + 1])) != nullptr);
    CHECK(dynamic_cast<const labelled*>(&hidden(*d.shapes[i])) == nullptr);
    CHECK(dynamic_cast<const circle*>(&hidden(*d.shapes[i + 2])) != nullptr);
  }
  for (const square& s : d.squares) {
    CHECK(hidden(s).area() == 4);
  }
  const labelled* volatile label = d.labels;
  CHECK(label->label() == "a label that does not fit a small string");
}

void write(evermap::store& store) {
  evermap::session session = store.write_or_create("drawing");
  drawing& d = session.find_or_make_root<drawing>();
  const std::size_t times = d.squares.size();
  if (times > 0) {
    look(d, times);
    // Rolls back to another process's commit, with its addresses.
    session.rollback();
    look(d, times);
  }
  fill(session, d, 2);
  look(d, times + 1);
  session.commit();
  // Values are moved by their containers, and destroyed, through the copies.
  d.squares.emplace_back(7);
  d.shapes.insert(d.shapes.begin(), session.make_unique<square>(1));
  d.shapes.erase(d.shapes.begin());
  d.squares.pop_back();
  look(d, times + 1);
  fill(session, d, 9);
  session.rollback();
  look(*session.root<drawing>(), times + 1);
  session.close();
}

void read(evermap::store& store) {
  evermap::snapshot snapshot = store.read("drawing");
  const drawing* d = snapshot.root<drawing>();
  look(*d, d->squares.size());
  std::cout << "code at " << reinterpret_cast<const void*>(&read) << "\n";
}

// A rollback to before the root was created, and creating it again.
void again(evermap::store& store) {
  evermap::session session = store.write_or_create("again");
  fill(session, session.find_or_make_root<drawing>(), 2);
  session.rollback();
  CHECK(session.root<drawing>() == nullptr);
  CHECK_THROWS(evermap::invalid_argument, (void)session.make<circle>(1.0));
  drawing& d = session.find_or_make_root<drawing>();
  fill(session, d, 2);
  look(d, 1);
  session.commit();
  session.close();
  {
    // The copies are rewritten in a protected object too.
    evermap::write_options options;
    options.protection = EM_PROTECTION_PAGES;
    evermap::session closed = store.write("again", options);
    look(*closed.root<drawing>(), 1);
    closed.rollback();
    look(*closed.root<drawing>(), 1);
  }
  session = store.write("again");
  drawing& kept = *session.root<drawing>();
  look(kept, 1);
  session.destroy(&kept);
  session.set_root(nullptr);
  CHECK(session.info().blocks == 0);
}

struct other_drawing : evermap::polymorphic<circle> {
  evermap::vector<evermap::unique_ptr<shape>> shapes;
  explicit other_drawing(int) {}
  other_drawing() = default;
};
struct impossible : evermap::polymorphic<diamond> {};

// Reads a group of `words` words. The word behind it belongs to no table.
std::size_t words_read(std::size_t words) {
  static std::uintptr_t table[evermap::detail::vtable_words_max + 2];
  std::fill(std::begin(table), std::end(table), reinterpret_cast<std::uintptr_t>(&words_read));
  table[0] = 0;
  table[1] = reinterpret_cast<std::uintptr_t>(&typeid(circle));
  table[words] = 1;
  return evermap::detail::read_group(reinterpret_cast<std::uintptr_t>(table + 2), typeid(circle)).words;
}

void a_group_that_is_too_long_is_refused() {
  constexpr std::size_t max = evermap::detail::vtable_words_max;
  CHECK(words_read(max) == max);
  CHECK(says(CHECK_THROWS(evermap::unsupported, (void)words_read(max + 1)), "longer than"));
}

void refusals(evermap::store& store) {
  evermap::session session = store.write_or_create("refusals");
  CHECK(says(CHECK_THROWS(evermap::invalid_argument, (void)session.make<circle>(1.0)), "registered"));
  CHECK(session.info().blocks == 0);
  session.find_or_make_root<other_drawing>();
  CHECK_THROWS(evermap::invalid_argument, (void)session.make<square>(1.0));
  CHECK(says(CHECK_THROWS(evermap::unsupported, (void)session.make<impossible>()), "virtual bases"));
}

}  // namespace

int main(int count, char** arguments) {
  CHECK(count == 3);
  return run_reporting([&] {
    evermap::store store = evermap::store::open_or_create(arguments[1]);
    const std::string verb = arguments[2];
    if (verb == "write") {
      write(store);
    } else if (verb == "read") {
      read(store);
    } else {
      CHECK(verb == "more");
      again(store);
      refusals(store);
      a_group_that_is_too_long_is_refused();
    }
  });
}
