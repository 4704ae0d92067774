#include "tests/simt/support.h"
#include "tests/simt/tensor_kernels.h"

// cp.async: copies of single threads.

namespace simt::test {
namespace {

TEST(CpAsync, APipelineGivesWhatPlainCopiesGive) {
  early_and_late([] {
    for (const int n : {1, 63, 64, 65, 130, 320, 403}) {
      const OnDevice<float> x(numbers(static_cast<std::size_t>(n))), y(static_cast<std::size_t>(n));
      EXPECT_OK(reverse_tiles(n, x.data(), y.data()));
      EXPECT_EQ(diagnosis(), "");
      const std::vector<float> result = y.read();
      for (int i = 0; i < n; ++i) {
        const int from = i / 64 * 64 + 63 - i % 64;
        ASSERT_EQ(result[static_cast<std::size_t>(i)], from < n ? static_cast<float>(from + 1) : 0.0f) << i;
      }
    }
  });
}

TEST(CpAsync, FourEightAndSixteenBytes) {
  early_and_late([] {
    const OnDevice<float> x(numbers(224)), y(224);
    EXPECT_OK(copy_words(x.data(), y.data()));
    EXPECT_EQ(diagnosis(), "");
    const std::vector<float> result = y.read();
    for (std::size_t i = 0; i < 224; ++i) ASSERT_EQ(result[i], static_cast<float>((i ^ 1) + 1));
  });
}

// What a plain build sees: the wrong values, where copies come late.
TEST(CpAsync, WithoutItsWaitNothingHasArrived) {
  if (can_find_races()) GTEST_SKIP() << "the race build names it";
  options().async = Async::late;
  const OnDevice<float> out(numbers(128));
  for (const auto run : {cp_async_no_wait, cp_async_no_commit}) {
    EXPECT_OK(run(out.data()));
    EXPECT_EQ(diagnosis(), "");
    EXPECT_TRUE(is_nan(out.read()[64 + 5]));
  }
  options().async = Async::at_issue;
  EXPECT_OK(cp_async_no_wait(out.data()));
  EXPECT_EQ(out.read()[64 + 5], 6) << "done at once, the mistake does not show";
  options().async = Async::late;
}

class CopyBugs : public testing::TestWithParam<Planted> {};
TEST_P(CopyBugs, AreNamedInEveryOrder) {
  expect_found(GetParam(), "copies.cu");
}

INSTANTIATE_TEST_SUITE_P(
    CpAsync, CopyBugs,
    testing::Values(BUG(cp_async_misaligned, "cp.async", "thread (3,0,0)", "16", "@cp_async_misaligned"),
                    BUG(cp_async_from_shared, "cp.async", "global memory", "@cp_async_from_shared"),
                    BUG(cp_async_too_long, "cp.async", "4 bytes", "8", "@cp_async_too_long")),
    name_of);

#if defined(SIMT_RACE)
INSTANTIATE_TEST_SUITE_P(
    CpAsyncRace, CopyBugs,
    testing::Values(BUG(cp_async_no_wait, "race in shared memory", "@cp_async_no_wait", "asynchronously",
                        "@cp_async_no_wait_copy", "wait")
                        .by([](unsigned a, unsigned b) { return a == b; }),
                    BUG(cp_async_no_commit, "race in shared memory", "@cp_async_no_commit",
                        "@cp_async_no_commit_copy", "wait"),
                    BUG(cp_async_one_group_too_few, "race in shared memory", "@cp_async_one_group_too_few",
                        "@cp_async_one_group_too_few_copy", "wait"),
                    BUG(cp_async_no_barrier, "race in shared memory", "@cp_async_no_barrier",
                        "@cp_async_no_barrier_copy")
                        .by([](unsigned a, unsigned b) { return a + b == 63; }),
                    BUG(cp_async_over_reader, "race in shared memory", "@cp_async_over_reader",
                        "@cp_async_over_reader_read", "barrier")
                        .by([](unsigned a, unsigned b) { return a + b == 63; }),
                    BUG(cp_async_source_changes, "race in global memory", "@cp_async_source_changes",
                        "asynchronously", "@cp_async_source_changes_copy", "wait")),
    name_of);
#endif

#if defined(__SANITIZE_ADDRESS__)
TEST(CpAsyncBounds, ASourceBeyondItsMemory) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const OnDevice<float> x(numbers(32)), out(32);
  EXPECT_OK(cp_async_beyond(0, x.data(), out.data()));
  EXPECT_EQ(diagnosis(), "");
  EXPECT_DEATH((cp_async_beyond(1, x.data(), out.data()), diagnosis()),
               "kernel cp_async_beyond, block .0,0,0.: thread .31,0,0(.|\n)*heap-buffer-overflow(.|\n)*" +
                   marked_line("copies.cu", "cp_async_beyond"));
}
#endif

}  // namespace
}  // namespace simt::test
