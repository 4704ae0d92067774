// Every file of tests/golden/, made by an independent framework (make_goldens.py), through the code path of
// `athanor run-op`.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "examples/athanor_tool/run_op.h"
#include "tensor/safetensors.h"

namespace athanor::tool {
namespace {

constexpr double kTolerance = 1e-5;  // of the largest magnitude in the reference

/// The golden files of the ops whose names are given; of all where none is.
std::vector<std::filesystem::path> golden_files(const std::vector<std::string>& ops = {}) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(ATHANOR_GOLDEN_DIR)) {
    const auto is_of = [stem = entry.path().stem().string()](const std::string& op) {
      return stem.starts_with(op);
    };
    if (entry.path().extension() != ".safetensors") continue;
    if (ops.empty() || std::any_of(ops.begin(), ops.end(), is_of)) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void expect_close(const Tensor& got, const Tensor& expected, const std::string& what) {
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

void check(const std::filesystem::path& file, const std::string& impl) {
  const OpCall call = read_op_call(file);
  const StateDict held = safetensors::load(file);
  const StateDict results = run_op(call, kCpu, impl);
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

class Golden : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Golden, MatchesIndependentFramework) {
  check(GetParam(), "automatic");
}

class GoldenImpl : public testing::TestWithParam<std::tuple<std::filesystem::path, const char*>> {};

TEST_P(GoldenImpl, MatchesIndependentFramework) {
  const auto& [file, impl] = GetParam();
  try {
    check(file, impl);
  } catch (const BackendError& error) {  // a build without oneDNN, or a shape it has no code for
    GTEST_SKIP() << error.what();
  }
}

const auto kFileName = [](const auto& test) { return test.param.stem().string(); };
const auto kFileAndImpl = [](const auto& test) {
  return std::get<0>(test.param).stem().string() + "_" + std::get<1>(test.param);
};
INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(golden_files()), kFileName);
INSTANTIATE_TEST_SUITE_P(Files, GoldenImpl,
                         testing::Combine(testing::ValuesIn(golden_files({"conv2d", "linear", "matmul"})),
                                          testing::Values("reference", "eigen", "vendor")),
                         kFileAndImpl);

TEST(GoldenFiles, CoverEveryOp) {
  std::set<std::string> covered;
  for (const auto& file : golden_files()) covered.insert(read_op_call(file).op);
  for (const std::string& op : op_names()) EXPECT_EQ(covered.count(op), 1u) << op << " has no golden file";
}

}  // namespace
}  // namespace athanor::tool
