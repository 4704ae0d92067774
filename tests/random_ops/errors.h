#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tensor/dtype.h"

namespace athanor::random_ops {

/// The largest error of each op, by the dtype of the result, forward and backward.
class Errors {
 public:
  struct Key {
    std::string op;
    DType dtype;
    bool operator<(const Key& other) const { return std::tie(op, dtype) < std::tie(other.op, other.dtype); }
  };
  struct Largest {
    double error[2] = {-1, -1};  ///< forward, backward; -1: never measured
  };

  void add(const std::string& op, DType dtype, bool backward, double error);
  /// -1 where nothing was measured.
  double of(const std::string& op, DType dtype, bool backward) const;
  const std::map<Key, Largest>& all() const { return all_; }
  std::size_t ops() const;

  static Errors read(const std::string& file);
  void write(const std::string& file) const;
  /// For a person, with the limits beside it where there are any.
  std::string text(const Errors& limits) const;

 private:
  std::map<Key, Largest> all_;
};

/// Results of a peer that are other numbers, by op, number of the case and name of the result; and whether
/// ours are, too.
class Results {
 public:
  struct Place {
    std::string op;
    std::uint64_t number;
    std::string name;
    bool operator<(const Place& other) const {
      return std::tie(op, number, name) < std::tie(other.op, other.number, other.name);
    }
  };

  void add(const Place& place, bool ours) { all_[place] = ours; }
  bool contains(const Place& place) const { return all_.count(place) != 0; }
  /// Whether ours is another number there, too.
  bool has_ours(const Place& place) const {
    const auto at = all_.find(place);
    return at != all_.end() && at->second;
  }
  const std::map<Place, bool>& all() const { return all_; }

  static Results read(const std::string& file);
  void write(const std::string& file) const;

 private:
  std::map<Place, bool> all_;
};

/// A table in Markdown of several files; columns are NAME=FILE. Then how many results of each op are other
/// numbers with a peer.
void write_table(const std::string& file, const std::vector<std::string>& columns, const Results& others);

}  // namespace athanor::random_ops
