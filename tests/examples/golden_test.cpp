#include "tests/support/golden.h"

#include <set>
#include <tuple>

#include "kernels/elementwise_ops.h"

namespace athanor::tool::golden_test {

class Golden : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Golden, MatchesIndependentFramework) {
  check_golden(GetParam(), "automatic");
}

class GoldenImpl : public testing::TestWithParam<std::tuple<std::filesystem::path, const char*>> {};

TEST_P(GoldenImpl, MatchesIndependentFramework) {
  const auto& [file, impl] = GetParam();
  try {
    check_golden(file, impl);
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
                         testing::Combine(testing::ValuesIn(golden_files({"conv2d", "conv_transpose2d",
                                                                          "linear", "matmul"})),
                                          testing::Values("reference", "vendor")),
                         kFileAndImpl);

TEST(GoldenFiles, CoverEveryOp) {
  std::set<std::string> covered;
  for (const auto& file : golden_files()) covered.insert(read_op_call(file).op);
  const std::set<std::string> unary = {
#define ATH_NAME(Op, name) #name,
      ATH_UNARY_OPS(ATH_NAME)
#undef ATH_NAME
  };
  for (const std::string& op : op_names()) {
    // A new unary op has its generated tests before somebody with PyTorch adds its file.
    if (unary.contains(op)) continue;
    EXPECT_EQ(covered.count(op), 1u) << op << " has no golden file";
  }
  EXPECT_GE(covered.size(), 35u);
}

}  // namespace athanor::tool::golden_test
