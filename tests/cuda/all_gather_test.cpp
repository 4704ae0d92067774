#include "tests/cuda/device_ranks.h"
#include "tests/support/all_gather_cases.h"

namespace athanor::all_gather_test {

using AllGatherOnDevice = test::DeviceTest;

TEST_F(AllGatherOnDevice, RowsAndGradientsToTheBit) {
  for (const int world : {1, 3}) test::run_staged_ranks(world, test::check_rows_and_gradients);
}
TEST_F(AllGatherOnDevice, WorksWithoutGradients) {
  test::run_staged_ranks(2, test::check_no_gradient_is_asked_for);
}
TEST_F(AllGatherOnDevice, ReportsMismatchedRanks) {
  test::run_staged_ranks(2, test::check_ranks_that_differ_are_told);
}

}  // namespace athanor::all_gather_test
