#pragma once

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "examples/athanor_tool/run_op.h"
#include "tensor/io/safetensors.h"
#include "tests/support/folder.h"

// Files of tests/golden/, made by an independent framework (make_goldens.py), through the code path of
// `athanor run-op`, on any device.

namespace athanor::tool {

inline constexpr double kTolerance = 1e-5;  // of the largest magnitude in the reference

/// The golden files of the ops whose names are given; of all where none is.
inline std::vector<std::filesystem::path> golden_files(const std::vector<std::string>& ops = {}) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(test::folder("ATHANOR_GOLDEN_DIR", ATHANOR_GOLDEN_DIR))) {
    const auto is_of = [stem = entry.path().stem().string()](const std::string& op) {
      return stem.starts_with(op);
    };
    if (entry.path().extension() != ".safetensors") continue;
    if (ops.empty() || std::any_of(ops.begin(), ops.end(), is_of)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

inline void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  const std::vector<double> a = got.to_vector(), b = expected.to_vector();
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::isfinite(a[i])) << what << " [" << i << "]";
    largest = std::max(largest, std::abs(b[i]));
    error = std::max(error, std::abs(a[i] - b[i]));
  }
  EXPECT_LE(error, kTolerance * largest) << what;
}

/// Runs a file's op and compares everything it expects.
inline void check_golden(const std::filesystem::path& file, const std::string& impl, Device device = kCpu) {
  const OpCall call = read_op_call(file);
  const StateDict held = safetensors::load(file);
  const StateDict results = run_op(call, device, impl);
  for (const auto& [name, value] : held) {
    if (!name.starts_with("expect.")) continue;
    const std::string result = name.substr(7);
    ASSERT_TRUE(results.contains(result)) << result << " is missing";
    expect_close(results.tensor(result), std::get<Tensor>(value), impl + ": " + result);
  }
  // A buffer without an expectation must not have moved.
  for (const std::string& name : results.names()) {
    if (held.contains("expect." + name)) continue;
    ASSERT_TRUE(held.contains(name)) << "nothing to compare " << name << " with";
    EXPECT_EQ(results.tensor(name).to_vector(), held.tensor(name).to_vector()) << name;
  }
}

}  // namespace athanor::tool
