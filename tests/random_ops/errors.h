#pragma once

#include <map>
#include <set>
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

/// Results of cases, by op, number of the case and name of the result.
class Results {
 public:
  void add(const std::string& op, std::uint64_t number, const std::string& name) {
    all_.insert({op, number, name});
  }
  bool contains(const std::string& op, std::uint64_t number, const std::string& name) const {
    return all_.count({op, number, name}) != 0;
  }

  static Results read(const std::string& file);
  void write(const std::string& file) const;

 private:
  std::set<std::tuple<std::string, std::uint64_t, std::string>> all_;
};

/// A table in Markdown of several files; columns are NAME=FILE.
void write_table(const std::string& file, const std::vector<std::string>& columns);

}  // namespace athanor::random_ops
