#include <atomic>
#include <chrono>

#include "dist/collectives/wait.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/collective_cases.h"
#include "tests/support/compare_calls_cases.h"
#include "tests/support/errors.h"

namespace athanor::collective_test {

using namespace std::chrono_literals;
using dist::Transport;
using test::Algorithm;
using test::Communicator;

using StagedCollectives = test::DeviceTest;

TEST_F(StagedCollectives, ReduceOverAllRanks) {
  for (const int world : {1, 2, 3}) test::run_staged_ranks(world, test::check_reductions);
}
TEST_F(StagedCollectives, RestartOnNewValues) {
  for (const int world : {2, 4}) test::run_staged_ranks(world, test::check_restarts);
}
TEST_F(StagedCollectives, BroadcastFromEveryRoot) {
  for (const int world : {1, 3}) test::run_staged_ranks(world, test::check_broadcasts);
}
TEST_F(StagedCollectives, AllRanksHaveTheSameBits) {
  test::run_staged_ranks(4, test::check_all_ranks_agree);
}
TEST_F(StagedCollectives, DelaysChangeNothing) {
  test::run_staged_ranks(3, test::check_restarts, {.delay = 300us, .seed = 3});
}
TEST_F(StagedCollectives, RankOrderRoundsOnce) {
  test::run_staged_ranks(3, test::check_rank_order_rounds_once);
}
TEST_F(StagedCollectives, Barriers) {
  test::run_staged_ranks(3, test::check_barriers);
}

TEST_F(StagedCollectives, AllMismatchedRanksReportIt) {
  for (const test::OtherCall& call : test::other_calls())
    test::run_staged_ranks(3, [&](Transport& transport) { test::check_other_call(transport, call); });
}
TEST_F(StagedCollectives, AMissingStepIsFound) {
  test::run_staged_ranks(
      2, [](Transport& transport) { test::check_missing_step(transport, dist::Overlap::thread); });
}
TEST_F(StagedCollectives, ComparingChangesNothing) {
  test::run_staged_ranks(3, test::check_comparing_changes_nothing);
}

TEST_F(StagedCollectives, RejectHostMemory) {
  test::run_staged_ranks(1, [](Transport& transport) {
    Communicator comm(transport);
    EXPECT_ERROR(ArgumentError, comm.all_reduce(Tensor::zeros({4})), "reduce_scatter", test::device().str(),
                 "cpu");
  });
}

// The memory of what was let go of is free afterwards, and the device works.
TEST_F(StagedCollectives, AStoppedRankIsNamedAfterTheTimeout) {
  std::atomic<int> waiting{2};
  test::run_staged_ranks(3, [&](Transport& transport) {
    const auto all_have_waited = [&] {  // who goes first is lost to the others
      while (waiting > 0) std::this_thread::sleep_for(1ms);
    };
    if (transport.rank() == 2) return all_have_waited();
    Communicator comm(transport, {.algorithm = Algorithm::rank_order, .timeout = 3s});
    const Tensor x = test::ranks_part(transport.rank(), 64, DType::f32, transport.device());
    EXPECT_TRUE(test::names(
        test::error_of(comm, *comm.all_reduce(x), 7),
        {"rank_order all_reduce", "bucket 7", "rank 2", "3 s", fmt::format("rank {}", transport.rank())}));
    --waiting;
    all_have_waited();
  });
  EXPECT_EQ(test::ranks_part(0, 4, DType::f32, test::device()).to(kCpu).to_vector()[1], 3);
}

}  // namespace athanor::collective_test
