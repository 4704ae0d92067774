#include "tests/support/golden.h"

#include "tests/cuda/device.h"

namespace athanor::tool::golden_test {

class GoldenOnDevice : public test::DeviceTest, public testing::WithParamInterface<std::filesystem::path> {};

TEST_P(GoldenOnDevice, MatchesIndependentFramework) {
  check_golden(GetParam(), "automatic", test::device());
}
INSTANTIATE_TEST_SUITE_P(Files, GoldenOnDevice, testing::ValuesIn(golden_files()),
                         [](const auto& test) { return test.param.stem().string(); });

class GoldenImplOnDevice
    : public test::DeviceTest,
      public testing::WithParamInterface<std::tuple<std::filesystem::path, const char*>> {};

TEST_P(GoldenImplOnDevice, MatchesIndependentFramework) {
  const auto& [file, impl] = GetParam();
  try {
    check_golden(file, impl, test::device());
  } catch (const BackendError& error) {  // an emulated device, or a shape the vendor has no code for
    if (std::string(impl) == "reference") throw;
    GTEST_SKIP() << error.what();
  }
}
// An emulated device has no vendor.
std::vector<const char*> impls() {
  return cuda_is_emulated() ? std::vector<const char*>{"reference"}
                            : std::vector<const char*>{"reference", "vendor"};
}
INSTANTIATE_TEST_SUITE_P(
    Files, GoldenImplOnDevice,
    testing::Combine(testing::ValuesIn(golden_files({"conv2d", "conv_transpose2d", "linear", "matmul"})),
                     testing::ValuesIn(impls())),
    [](const auto& test) { return std::get<0>(test.param).stem().string() + "_" + std::get<1>(test.param); });

// Each case may be skipped, but not all of an op's.
using GoldenVendorOnDevice = test::DeviceTest;
TEST_F(GoldenVendorOnDevice, HasCodeForEveryOp) {
  if (cuda_is_emulated()) GTEST_SKIP() << "an emulated device has no vendor";
  for (const char* op : {"conv2d", "conv_transpose2d", "linear", "matmul"}) {
    int ran = 0;
    for (const std::filesystem::path& file : golden_files({op})) {
      try {
        check_golden(file, "vendor", test::device());
        ++ran;
      } catch (const BackendError&) {
      }
    }
    EXPECT_GT(ran, 0) << op;
  }
}

}  // namespace athanor::tool::golden_test
