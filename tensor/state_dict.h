#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tensor/tensor.h"

namespace athanor {

/// This rank's part of a tensor whose elements are distributed over the ranks of a job, as a sharded run
/// saves it. A file has the whole tensor, under the same name.
struct ShardedTensor {
  struct Run {
    std::int64_t begin = 0;  ///< first element, in the whole tensor
    Tensor values;           ///< flat and dense
  };
  Shape shape;  ///< of the whole tensor
  DType dtype = DType::f32;
  std::vector<Run> runs;  ///< this rank's, ascending; may be empty
};

/// Data to save or load: an ordered list of names, each with a tensor, an integer, a real number, a text, or
/// this rank's part of a tensor. Every stateful part of a run (module, optimizer, scaler, loader) writes one
/// and reads one; prefixes join them ("model.", "optimizer."). Tensors are handles: set() copies no values.
///
/// Reading is strict both ways: a getter names an entry that is missing or of another type, and
/// require_all_used() names the entries that were never read.
class StateDict {
 public:
  using Value = std::variant<Tensor, std::int64_t, double, std::string, ShardedTensor>;

  struct Entry {
    std::string name;
    Value value;
  };

  /// Appends an entry. Throws ArgumentError on an empty or taken name and on an undefined tensor.
  void set(std::string name, Value value);
  /// Appends all entries of `other`, each name prefixed with `prefix`.
  void set_all(std::string_view prefix, const StateDict& other);

  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  /// The entry's value, or null; does not mark it as used.
  const Value* find(std::string_view name) const;

  /// The value under a name, marked as used. Throws ArgumentError naming the nearest name if it is missing,
  /// and both types if the type differs. `tensor` with a shape checks that too.
  const Tensor& tensor(std::string_view name) const;
  const Tensor& tensor(std::string_view name, const Shape& shape) const;
  const ShardedTensor& sharded(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;

  /// The entries under `prefix`, without the prefix. Marks them as used; the caller must check the result.
  StateDict under(std::string_view prefix) const;
  /// The entries among these names, in the given order, marked as used.
  StateDict picked(const std::vector<std::string>& names) const;
  bool contains_prefix(std::string_view prefix) const;

  /// Throws ArgumentError naming the entries that were never read. `who` begins the message.
  void require_all_used(std::string_view who) const;

  std::vector<std::string> names() const;
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  const Value& use(std::string_view name, std::string_view wanted) const;
  template <class T> const T& get(std::string_view name, std::string_view wanted) const;

  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;  // name -> position in entries_
  mutable std::vector<bool> used_;
};

/// "a tensor", "an integer", "a real number", "a text" or "a part of a tensor": the kind of a value, for
/// messages.
std::string_view kind_of(const StateDict::Value& value);

/// The first few names, quoted, and the number of others: "'a', 'b' and 7 more".
std::string list_names(const std::vector<std::string>& names, std::size_t most = 5);

}  // namespace athanor
