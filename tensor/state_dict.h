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

/// A tensor of which the ranks of a job hold some elements each, and together all of them: what a sharded run
/// saves. A file has the whole tensor, under the same name.
struct ShardedTensor {
  struct Run {
    std::int64_t begin = 0;  ///< first element, of the whole tensor
    Tensor values;           ///< flat and dense
  };
  Shape shape;  ///< of the whole
  DType dtype = DType::f32;
  std::vector<Run> runs;  ///< this rank's, ascending; there may be none
};

/// What is saved and loaded: an ordered list of names with a tensor, an integer, a real number or a text
/// each, or this rank's part of a tensor. Every part of a run that has state (module, optimizer, scaler,
/// loader) writes one and reads one; parts are joined under prefixes ("model.", "optimizer."). Tensors are
/// handles: set() copies no values.
///
/// Reading is strict both ways: a getter names what is missing or of another type, and require_all_used()
/// names what nobody asked for.
class StateDict {
 public:
  using Value = std::variant<Tensor, std::int64_t, double, std::string, ShardedTensor>;

  struct Entry {
    std::string name;
    Value value;
  };

  /// Appends an entry. Throws ArgumentError on an empty or taken name and on an undefined tensor.
  void set(std::string name, Value value);
  /// Appends all entries of `other`, each name behind `prefix`.
  void set_all(std::string_view prefix, const StateDict& other);

  bool contains(std::string_view name) const { return index_.find(name) != index_.end(); }
  /// The entry's value, or null; does not count as use.
  const Value* find(std::string_view name) const;

  /// The value under a name; counts as use. Throws ArgumentError, naming the nearest name there is, where it
  /// is missing, and naming both types where it is another. `tensor` with a shape checks that, too.
  const Tensor& tensor(std::string_view name) const;
  const Tensor& tensor(std::string_view name, const Shape& shape) const;
  const ShardedTensor& sharded(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  double real(std::string_view name) const;
  const std::string& text(std::string_view name) const;

  /// The entries under `prefix`, without it. They count as used here: who asked for them checks on.
  StateDict under(std::string_view prefix) const;
  /// Those of these names that are here, in the order given; they count as used.
  StateDict picked(const std::vector<std::string>& names) const;
  bool contains_prefix(std::string_view prefix) const;

  /// Throws ArgumentError naming the entries no getter has asked for. `who` begins the message.
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

/// "a tensor", "an integer", "a real number", "a text" or "a part of a tensor": what a value is, as messages
/// say it.
std::string_view kind_of(const StateDict::Value& value);

/// The first few names, quoted, and how many more there are: "'a', 'b' and 7 more".
std::string list_names(const std::vector<std::string>& names, std::size_t most = 5);

}  // namespace athanor
