#include "tests/cuda/device_ranks.h"
#include "tests/support/sync_batch_norm_cases.h"

namespace athanor::sync_batch_norm_test {

using dist::Transport;
using SyncBatchNormOnDevice = test::DeviceTest;

// Of the cases of the CPU those that fit the time the emulator needs.
TEST_F(SyncBatchNormOnDevice, EqualsOneRankOnTheJoinedBatch) {
  std::vector<test::JoinCase> cases;
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16}) {
    cases.push_back({dtype, Activation::none, false, 6});
    cases.push_back({dtype, Activation::relu, true, 33});
  }
  cases.push_back({DType::f16, Activation::gelu, true, 8});
  for (const int world : {1, 2, 4}) {
    test::run_staged_ranks(world,
                           [&](Transport& transport) { test::check_join_equals_one_rank(transport, cases); });
  }
}

TEST_F(SyncBatchNormOnDevice, OneValueOverAllRanksIsRefused) {
  test::run_staged_ranks(3, test::check_one_sample_is_refused);
}

}  // namespace athanor::sync_batch_norm_test
