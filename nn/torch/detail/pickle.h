#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

// Pickles of weights, as torch.save() writes them. Private to nn/.

namespace athanor::pickle {

/// An index in Reader's list of values.
using Id = std::uint32_t;

enum class Kind : std::uint8_t {
  none,
  integer,  ///< number; also True and False
  other,    ///< an integer beyond i64, or a real number: never used
  text,     ///< text: a str or bytes
  tuple,    ///< items
  list,     ///< items
  dict,     ///< items: a key, its value, a key, ...
  global,   ///< number: a Global
  storage,  ///< number: in storages()
  tensor,   ///< number: in tensors()
  /// text: its type; a storage or tensor that no dtype or layout of ours can hold, or a function that makes
  /// one
  unreadable,
  opaque,  ///< text: its class; any other object, class or function
};

struct Value {
  Kind kind = Kind::none;
  std::int64_t number = 0;
  std::string_view text = {};  ///< a view of the file
  std::vector<Id> items = {};
};

/// A storage as the pickle describes it: `count` elements of `dtype` from `first` on, of those stored
/// elsewhere under a key.
struct Storage {
  std::string_view key;
  DType dtype = DType::f32;
  std::int64_t numel = 0;  ///< all elements under that key
  std::int64_t first = 0, count = 0;
};

/// A strided view inside a storage.
struct Tensor {
  std::size_t storage = 0;
  std::int64_t offset = 0;  ///< in elements, from the first one under the key
  Shape shape;
  Strides strides;
};

/// Reads a pickle without running it: a stack machine that builds numbers, texts, tuples, lists and
/// dictionaries, and calls nothing. A pickle names Python's functions and classes; a short list of names maps
/// to tensors and dictionaries here, and what any other name would make is opaque, except that an object with
/// items is a dictionary or list. Sets are lists. Time is linear in the bytes, memory in the opcodes, at most
/// 2,097,152 (some 45,000 tensors). Source: Python's pickletools.py; torch/_utils.py,
/// torch/serialization.py.
class Reader {
 public:
  /// `path` appears in messages. The file must outlive this object.
  Reader(std::span<const std::byte> file, std::string path) : file_(file), path_(std::move(path)) {}

  /// Reads the pickle in bytes [at, end) and returns its value. Throws IoError naming file and byte.
  Id read(std::size_t at, std::size_t end);
  /// The offset after the last pickle.
  std::size_t position() const { return at_; }

  const Value& operator[](Id id) const { return values_[id]; }
  /// The last value under a text key in a dict; null if there is none.
  const Value* find(const Value& dict, std::string_view key) const;
  const std::vector<Storage>& storages() const { return storages_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }

  template <class... Args> [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    athanor::detail::fail<IoError>("torch file: {}: at byte {}: {}", path_, opcode_at_,
                                   printable(fmt::format(format, std::forward<Args>(args)...)));
  }

 private:
  // Primitive fields of the pickle.
  std::span<const std::byte> take(std::uint64_t bytes);
  std::uint64_t number(int bytes);
  std::string_view text(std::uint64_t bytes);
  std::string_view line();
  void long_integer(std::uint64_t bytes);
  std::int64_t decimal(std::string_view text) const;

  // The stack.
  void count(std::uint64_t work);
  Id add(Value value);
  void push(Value value) { stack_.push_back(add(std::move(value))); }
  void push_text(std::string_view text) { push({.kind = Kind::text, .text = text}); }
  void push_integer(std::int64_t number) { push({.kind = Kind::integer, .number = number}); }
  Id pop();
  Id top();
  std::vector<Id> pop_to_mark();
  void push_tuple(std::size_t items);
  Value& container(Kind kind);
  void append(Kind kind, std::vector<Id> items);

  // Groups of opcodes; false if the opcode is not in the group.
  bool run_number(std::uint8_t opcode);
  bool run_text(std::uint8_t opcode);
  bool run_container(std::uint8_t opcode);
  bool run_memo(std::uint8_t opcode);
  bool run_object(std::uint8_t opcode);
  void remember(std::uint64_t key);
  void recall(std::uint64_t key);

  // Python names and their replacements.
  void push_global(std::string_view module, std::string_view name);
  void call();
  void call(Id called, const std::vector<Id>& arguments);
  void call_from_mark();
  void push_first(const std::vector<Id>& arguments, Kind kind);
  void push_typed(const std::vector<Id>& arguments);
  bool is_unreadable(const std::vector<Id>& arguments) const;
  Value dict_of(const std::vector<Id>& arguments);
  void push_storage();
  void push_tensor(const std::vector<Id>& arguments);
  const Value& argument(const std::vector<Id>& arguments, std::size_t i, Kind kind) const;
  Dims dims(const Value& tuple) const;

  std::span<const std::byte> file_;
  std::string path_;
  std::size_t at_ = 0, end_ = 0, opcode_at_ = 0;
  std::uint64_t work_ = 0;    // opcodes, and pairs that one of them appends
  std::deque<Value> values_;  // addresses stay valid
  std::vector<Id> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, Id> memo_;
  std::vector<Storage> storages_;
  std::vector<Tensor> tensors_;
};

}  // namespace athanor::pickle
