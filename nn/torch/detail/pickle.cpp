#include "nn/torch/detail/pickle.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "tensor/base/error.h"

namespace athanor::pickle {
namespace {

constexpr std::uint64_t kMaxWork = std::uint64_t{1} << 21;

constexpr std::uint8_t code(char letter) {
  return static_cast<std::uint8_t>(letter);
}

}  // namespace

Id Reader::read(std::size_t at, std::size_t end) {
  at_ = at;
  end_ = std::min(end, file_.size());
  stack_.clear();
  marks_.clear();
  memo_.clear();
  for (;;) {
    opcode_at_ = at_;
    count(1);
    const auto opcode = static_cast<std::uint8_t>(number(1));
    if (opcode == code('.')) return pop();
    if (!run_number(opcode) && !run_text(opcode) && !run_container(opcode) && !run_memo(opcode) &&
        !run_object(opcode))
      fail("contains opcode 0x{:02x}, which torch.save() does not write", opcode);
  }
}

void Reader::count(std::uint64_t work) {
  work_ += work;
  if (work_ > kMaxWork) fail("a pickle of weights must have at most {} opcodes, but has more", kMaxWork);
}

const Value* Reader::find(const Value& dict, std::string_view key) const {
  const Value* found = nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    const Value& name = values_[dict.items[i]];
    if (name.kind == Kind::text && name.text == key) found = &values_[dict.items[i + 1]];
  }
  return found;
}

// What the pickle is made of -------------------------------------------------------------------------------

std::span<const std::byte> Reader::take(std::uint64_t bytes) {
  if (bytes > end_ - at_) fail("expected {} bytes more, but the pickle ends after {}", bytes, end_ - at_);
  const auto taken = file_.subspan(at_, static_cast<std::size_t>(bytes));
  at_ += taken.size();
  return taken;
}

std::uint64_t Reader::number(int bytes) {
  std::uint64_t value = 0;
  const auto taken = take(static_cast<std::uint64_t>(bytes));
  for (std::size_t i = 0; i < taken.size(); ++i) value |= std::to_integer<std::uint64_t>(taken[i]) << 8 * i;
  return value;
}

std::string_view Reader::text(std::uint64_t bytes) {
  const auto taken = take(bytes);
  return {reinterpret_cast<const char*>(taken.data()), taken.size()};
}

std::string_view Reader::line() {
  const auto rest = file_.subspan(at_, end_ - at_);
  const auto newline = std::find(rest.begin(), rest.end(), std::byte{'\n'});
  if (newline == rest.end()) fail("expected a line, but the pickle ends");
  const std::string_view line = text(static_cast<std::uint64_t>(newline - rest.begin()));
  ++at_;
  return line;
}

// Two's complement of any length. Integers of more than 8 bytes are stored as bytes.
void Reader::long_integer(std::uint64_t bytes) {
  if (bytes > 8) return push({.kind = Kind::other, .text = text(bytes)});
  if (bytes == 0) return push_integer(0);
  const std::uint64_t unused = 64 - 8 * bytes;
  push_integer(static_cast<std::int64_t>(number(static_cast<int>(bytes)) << unused) >> unused);
}

std::int64_t Reader::decimal(std::string_view text) const {
  std::int64_t value = 0;
  if (text.ends_with('L')) text.remove_suffix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) fail("expected a line with an integer");
  return value;
}

// The stack ------------------------------------------------------------------------------------------------

Id Reader::add(Value value) {
  values_.push_back(std::move(value));
  return static_cast<Id>(values_.size() - 1);
}

Id Reader::top() {
  if (stack_.size() <= (marks_.empty() ? 0 : marks_.back())) fail("expected a value on the stack");
  return stack_.back();
}

Id Reader::pop() {
  const Id id = top();
  stack_.pop_back();
  return id;
}

std::vector<Id> Reader::pop_to_mark() {
  if (marks_.empty()) fail("expected a mark on the stack");
  const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
  std::vector<Id> items(first, stack_.end());
  stack_.erase(first, stack_.end());
  marks_.pop_back();
  return items;
}

void Reader::push_tuple(std::size_t items) {
  Value tuple{.kind = Kind::tuple};
  for (std::size_t i = 0; i < items; ++i) tuple.items.push_back(pop());
  std::reverse(tuple.items.begin(), tuple.items.end());
  push(std::move(tuple));
}

Value& Reader::container(Kind kind) {
  Value& value = values_[top()];
  if (value.kind == Kind::opaque) value.kind = kind;  // of a class derived from dict or list
  if (value.kind != kind) fail("expected a {} on the stack", kind == Kind::list ? "list" : "dict");
  return value;
}

void Reader::append(Kind kind, std::vector<Id> items) {
  Value& value = container(kind);
  if (kind == Kind::dict && items.size() % 2 != 0) fail("expected a value for each key");
  value.items.insert(value.items.end(), items.begin(), items.end());
}

// Opcodes --------------------------------------------------------------------------------------------------

bool Reader::run_number(std::uint8_t opcode) {
  switch (opcode) {
    case code('N'): push({}); return true;
    case 0x88: push_integer(1); return true;
    case 0x89: push_integer(0); return true;
    case code('I'):
    case code('L'): push_integer(decimal(line())); return true;
    case code('J'): push_integer(static_cast<std::int32_t>(number(4))); return true;
    case code('K'): push_integer(static_cast<std::int64_t>(number(1))); return true;
    case code('M'): push_integer(static_cast<std::int64_t>(number(2))); return true;
    case 0x8a: long_integer(number(1)); return true;
    case 0x8b: long_integer(number(4)); return true;
    case code('F'):
      line();
      push({.kind = Kind::other});
      return true;
    case code('G'):
      take(8);
      push({.kind = Kind::other});
      return true;
    default: return false;
  }
}

bool Reader::run_text(std::uint8_t opcode) {
  switch (opcode) {
    case code('V'): push_text(line()); return true;
    case code('S'): {
      std::string_view quoted = line();
      if (quoted.size() < 2 || quoted.front() != quoted.back()) fail("expected a quoted string");
      push_text(quoted.substr(1, quoted.size() - 2));
      return true;
    }
    case code('U'):
    case code('C'):
    case 0x8c: push_text(text(number(1))); return true;
    case code('T'):
    case code('B'):
    case code('X'): push_text(text(number(4))); return true;
    case 0x8d:
    case 0x8e:
    case 0x96: push_text(text(number(8))); return true;
    default: return false;
  }
}

bool Reader::run_container(std::uint8_t opcode) {
  switch (opcode) {
    case code('('): marks_.push_back(stack_.size()); return true;
    case code(')'): push({.kind = Kind::tuple}); return true;
    case code(']'):
    case 0x8f: push({.kind = Kind::list}); return true;
    case code('}'): push({.kind = Kind::dict}); return true;
    case code('t'):
    case 0x91: push({.kind = Kind::tuple, .items = pop_to_mark()}); return true;
    case code('l'): push({.kind = Kind::list, .items = pop_to_mark()}); return true;
    case code('d'): {
      std::vector<Id> items = pop_to_mark();
      push({.kind = Kind::dict});
      append(Kind::dict, std::move(items));
      return true;
    }
    case 0x85: push_tuple(1); return true;
    case 0x86: push_tuple(2); return true;
    case 0x87: push_tuple(3); return true;
    case code('a'): append(Kind::list, {pop()}); return true;
    case code('e'):
    case 0x90: append(Kind::list, pop_to_mark()); return true;
    case code('s'): {
      const Id value = pop(), key = pop();
      append(Kind::dict, {key, value});
      return true;
    }
    case code('u'): append(Kind::dict, pop_to_mark()); return true;
    default: return false;
  }
}

bool Reader::run_memo(std::uint8_t opcode) {
  switch (opcode) {
    case code('p'): remember(static_cast<std::uint64_t>(decimal(line()))); return true;
    case code('q'): remember(number(1)); return true;
    case code('r'): remember(number(4)); return true;
    case 0x94: remember(memo_.size()); return true;
    case code('g'): recall(static_cast<std::uint64_t>(decimal(line()))); return true;
    case code('h'): recall(number(1)); return true;
    case code('j'): recall(number(4)); return true;
    case code('2'): stack_.push_back(top()); return true;
    case code('0'):
      if (!marks_.empty() && marks_.back() == stack_.size())
        marks_.pop_back();
      else
        (void)pop();
      return true;
    case code('1'): (void)pop_to_mark(); return true;
    default: return false;
  }
}

void Reader::remember(std::uint64_t key) {
  memo_.insert_or_assign(key, top());
}

void Reader::recall(std::uint64_t key) {
  const auto found = memo_.find(key);
  if (found == memo_.end()) fail("expected a value in the memo under {}, but there is none", key);
  stack_.push_back(found->second);
}

bool Reader::run_object(std::uint8_t opcode) {
  switch (opcode) {
    case 0x80: {
      const std::uint64_t protocol = number(1);
      if (protocol > 5) fail("expected a pickle of protocol 5 at most, but got {}", protocol);
      return true;
    }
    case 0x95: (void)number(8); return true;  // a frame: opcodes follow
    case code('c'): {
      const std::string_view module = line();
      push_global(module, line());
      return true;
    }
    case 0x93: {
      const Id name = pop(), module = pop();
      if (values_[name].kind != Kind::text || values_[module].kind != Kind::text)
        fail("expected a Python name");
      push_global(values_[module].text, values_[name].text);
      return true;
    }
    case code('Q'): push_storage(); return true;
    case code('R'):
    case 0x81: call(); return true;
    case 0x92:
      (void)pop();  // arguments by name
      call();
      return true;
    case code('o'): call_from_mark(); return true;
    case code('i'): {
      const std::string_view module = line(), name = line();
      std::vector<Id> arguments = pop_to_mark();
      push_global(module, name);
      push({.kind = Kind::tuple, .items = std::move(arguments)});
      call();
      return true;
    }
    case code('b'):
      (void)pop();  // attributes, such as a state_dict's versions
      (void)top();
      return true;
    default: return false;
  }
}

}  // namespace athanor::pickle
