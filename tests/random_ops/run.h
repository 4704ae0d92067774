#pragma once

#include <string>

#include "tests/random_ops/check.h"
#include "tests/random_ops/errors.h"

namespace athanor::random_ops {

struct Options {
  std::int64_t cases = 2000;
  std::uint64_t seed = 0, first = 0;
  std::string op = ".*";
  bool show = false;  ///< prints inputs and results
  Device device = kCpu;
  Errors limits;   ///< a peer's errors; ours may be twice as large, and at least 0.5
  Results others;  ///< where a peer's result and ours are other numbers, and ours may be. Of seed 0
};

/// Elements of an op's results for a dtype: how many there were, and how many of them were not compared since
/// the order of steps decides whether they overflow.
struct Compared {
  std::int64_t elements = 0, skipped = 0;
};

struct Report {
  Errors errors;
  Results others;  ///< results that are other numbers: not finite where they must be, or far off. Of a peer:
                   ///< and whether ours are
  std::map<std::string, Compared> compared;  ///< by "op dtype forward" or "... backward"
  std::int64_t cases = 0, failures = 0;

  /// What was drawn, but never compared, in words.
  std::vector<std::string> never_compared() const;
};

/// Runs cases on a device. Prints a line for each that fails.
Report run_cases(const Options& options);

/// Writes the calls of cases to FOLDER/N.safetensors, a thousand in each: tensors are named CASE/NAME, and
/// CASE being OP.NUMBER, and the metadata has `calls`, a list of {case, op, attributes, results}.
void dump_cases(const Options& options, const std::string& folder);
/// Measures what a peer has written to FOLDER/N.peer.safetensors: CASE/y, CASE/dx, ...; what it could not
/// run is not there.
Report measure_cases(const Options& options, const std::string& folder);

}  // namespace athanor::random_ops
