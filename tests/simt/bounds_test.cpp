#include "tests/simt/kernels.h"
#include "tests/simt/support.h"

// Only in the build with AddressSanitizer and UndefinedBehaviorSanitizer: they end the process. Each runs in
// several orders of threads, so a thread is named only where no other can be at fault.

namespace simt::test {
namespace {

class Bounds : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

constexpr auto kWhicheverCame = "[0-9]+,0,0";  // the first of threads that all are wrong

// The kernel, block and thread, then what is wrong, then the line, in a report of many lines.
std::string report(const std::string& kernel, const std::string& thread, const std::string& what) {
  return "kernel " + kernel + ", block .0,0,0.: thread ." + thread + ".(.|\n)*" + what + "(.|\n)*" +
         planted_line(kernel);
}

TEST_F(Bounds, OneFloatBeyondGlobalMemory) {
  const OnDevice<float> out(100);
  EXPECT_OK(beyond_global(out.data(), 99));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_DEATH((beyond_global(out.data(), 100), diagnosis()),
               report("beyond_global", "100,0,0", "heap-buffer-overflow"));
}

TEST_F(Bounds, ReadsAndNegativeIndicesToo) {
  const OnDevice<float> out(100);
  EXPECT_OK(beyond_read(out.data(), 36));
  EXPECT_OK(negative(out.data(), 0));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_DEATH((beyond_read(out.data(), 37), diagnosis()),
               report("beyond_read", "63,0,0", "heap-buffer-overflow(.|\n)*READ of size 4"));
  EXPECT_DEATH((negative(out.data(), 1), diagnosis()),
               report("negative", "0,0,0", "heap-buffer-overflow(.|\n)*WRITE of size 4"));
}

// The red zones are as wide as there can be: an index that is off by a row of 500 floats still meets one.
TEST_F(Bounds, ARowTooFar) {
  const OnDevice<float> out(100), next(100);
  EXPECT_DEATH((beyond_read(out.data(), 500), diagnosis()),
               report("beyond_read", kWhicheverCame, "heap-buffer-overflow"));
}

TEST_F(Bounds, StaticSharedMemoryThroughAPointer) {
  const OnDevice<float> out(64);
  EXPECT_OK(beyond_pointer(out.data(), 0));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_DEATH((beyond_pointer(out.data(), 1), diagnosis()),
               report("beyond_pointer", "63,0,0", "global-buffer-overflow"));
}

TEST_F(Bounds, OneFloatBeyondStaticSharedMemory) {
  const OnDevice<float> out(64);
  EXPECT_OK(beyond_static(out.data(), 0));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_DEATH((beyond_static(out.data(), 1), diagnosis()),
               "kernel beyond_static, block .0,0,0.: thread .63,0,0");
  EXPECT_DEATH((beyond_static(out.data(), 1), diagnosis()),
               planted_line("beyond_static") + ".*index 64 .*'float \\[64\\]'");
}

TEST_F(Bounds, OneFloatBeyondDynamicSharedMemory) {
  const OnDevice<float> out(64);
  EXPECT_OK(beyond_dynamic(out.data(), 0));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_DEATH((beyond_dynamic(out.data(), 1), diagnosis()),
               report("beyond_dynamic", "63,0,0", "heap-buffer-overflow"));
}

TEST_F(Bounds, AMisalignedVector) {
  const OnDevice<float> out(64);
  EXPECT_DEATH((misaligned(out.data()), diagnosis()), "kernel misaligned, block");
  EXPECT_DEATH((misaligned(out.data()), diagnosis()),
               planted_line("misaligned") + ".*(misaligned address|insufficient space)");
}

TEST_F(Bounds, AMisalignedVectorThatIsReadOrShared) {
  const OnDevice<float> out(64);
  EXPECT_DEATH((misaligned_read(out.data()), diagnosis()),
               planted_line("misaligned_read") + ".*(misaligned address|insufficient space)");
  EXPECT_DEATH((misaligned_shared(out.data()), diagnosis()),
               planted_line("misaligned_shared") + ".*(misaligned address|insufficient space)");
}

TEST_F(Bounds, MemoryThatWasFreedThoughQueuedWorkReachesIt) {
  const OnDevice<float> out(64);
  float* inside = nullptr;
  EXPECT_OK(cudaMalloc(&inside, 256));
  EXPECT_OK(cudaMemset(inside, 0, 256));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_OK(through_struct(inside, out.data()));
  EXPECT_OK(cudaFree(inside)) << "the pointer is inside a struct, where the runtime does not look";
  EXPECT_DEATH(diagnosis(), report("through_struct", kWhicheverCame, "use-after-poison"));
  cudaDeviceReset();
}

}  // namespace
}  // namespace simt::test
