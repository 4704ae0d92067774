#include <chrono>

#include "tests/cuda/device_ranks.h"
#include "tests/support/data_parallel_cases.h"

namespace athanor::data_parallel_test {

using namespace std::chrono_literals;
using dist::Transport;

// Enough that ranks have left the steps around the infinite pixel behind; the emulator that looks at every
// access takes long.
constexpr int kSteps = test::kChecksEveryAccess ? 9 : 12;
const std::vector<int> kStagedWorlds = test::kChecksEveryAccess ? std::vector{2} : std::vector{1, 2, 3, 4};

using StagedTraining = test::DeviceTest;

TEST_F(StagedTraining, ZeroOneEqualsDdpBitForBit) {
  for (const int world : kStagedWorlds) {
    if (world == 3) continue;
    test::run_staged_ranks(
        world, [](Transport& transport) { test::check_zero1_equals_ddp_over(transport, kSteps); });
  }
}
TEST_F(StagedTraining, EqualsOneRankOnTheJoinedBatch) {
  for (const int world : kStagedWorlds) test::run_staged_ranks(world, test::check_ddp_equals_one_rank);
}
TEST_F(StagedTraining, UnusedParametersJoinWithZeros) {
  test::run_staged_ranks(3, test::check_unused_parameters);
}
TEST_F(StagedTraining, RanksStartWithEqualWeights) {
  test::run_staged_ranks(3, test::check_ranks_begin_alike);
}
TEST_F(StagedTraining, AnyThreadMayAdvanceBuckets) {
  test::run_staged_ranks(2, test::check_overlap_changes_nothing);
}

}  // namespace athanor::data_parallel_test
