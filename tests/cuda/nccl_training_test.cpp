// Training over NCCL, and batch norms over all ranks.
#include <atomic>
#include <chrono>

#include "tests/cuda/nccl_ranks.h"
#include "tests/support/compare_calls_cases.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"
#include "tests/support/sync_batch_norm_cases.h"

namespace athanor::nccl_training_test {

using namespace std::chrono_literals;
using dist::Transport;
using test::Algorithm;
using test::Communicator;
using test::Ddp;
using test::Overlap;
using test::WholeModel;

constexpr int kSteps = test::kChecksEveryAccess ? 9 : 12;  // the infinite pixel comes in the eighth

using NcclTraining = test::DeviceTest;

TEST_F(NcclTraining, ZeroOneEqualsDdpBitForBit) {
  for (const int world : test::nccl_worlds()) {
    if (world == 3 || (test::kChecksEveryAccess && world != 2)) continue;
    test::run_nccl_ranks(world,
                         [](Transport& transport) { test::check_zero1_equals_ddp_over(transport, kSteps); });
  }
}
TEST_F(NcclTraining, EqualsOneRankOnTheJoinedBatch) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_ddp_equals_one_rank);
}
// Sums of whole numbers, which are exact in any order, by NCCL's own collectives.
TEST_F(NcclTraining, NativeEqualsOneRankOnTheJoinedBatch) {
  for (const int world : test::nccl_worlds()) {
    test::run_nccl_ranks(world, [](Transport& transport) {
      test::check_accumulation_with(transport, {.algorithm = Algorithm::native},
                                    {.device = transport.device()});
    });
  }
}
#if defined(ATHANOR_SIMT)  // the real one may add in another order in its two calls
TEST_F(NcclTraining, NativeZeroOneEqualsDdp) {
  for (const int world : {2, 4}) {
    test::run_nccl_ranks(world, [](Transport& transport) {
      for (const char* const optimizer : {"adamw", "muon"}) {  // Muon's pieces are unequal
        const test::ParallelRun run{.precision = Precision::bf16,
                                    .comm = {.algorithm = Algorithm::native},
                                    .steps = kSteps,
                                    .optimizer = optimizer};
        EXPECT_TRUE(test::parallel_run<Ddp>(transport, run) ==
                    test::parallel_run<test::Zero1>(transport, run))
            << optimizer;
      }
    });
  }
}
#endif
// Weights that travel while the next forward pass computes: whoever pushes them, whatever gathers them.
TEST_F(NcclTraining, OverlappedGathersChangeNoBit) {
  for (const int world : test::nccl_worlds()) {
    test::run_nccl_ranks(world, [](Transport& transport) {
      test::ParallelRun run{.precision = Precision::bf16, .steps = 9};
      const auto plain = test::parallel_run<test::Zero1>(transport, run);
      run.overlap_gather = true;
      for (const Overlap overlap : {Overlap::none, Overlap::pumped, Overlap::thread}) {
        run.overlap = overlap;
        EXPECT_TRUE(test::parallel_run<test::Zero1>(transport, run) == plain);
      }
#if defined(ATHANOR_SIMT)
      run.comm.algorithm = Algorithm::native;
      EXPECT_TRUE(test::parallel_run<test::Zero1>(transport, run) == plain);
#endif
    });
  }
}
TEST_F(NcclTraining, UnusedParametersJoinWithZeros) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_unused_parameters);
}
TEST_F(NcclTraining, RanksStartWithEqualWeights) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_ranks_begin_alike);
}
TEST_F(NcclTraining, AMissingStepIsFoundByTheAdvancingThread) {
  if (cuda_device_count() < 2) GTEST_SKIP() << "needs two GPUs";
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none})
    test::run_nccl_ranks(2, [&](Transport& transport) { test::check_missing_step(transport, overlap); });
}
TEST_F(NcclTraining, AnyThreadMayAdvanceBuckets) {
  for (const int world : test::nccl_worlds()) {
    if (world == 1 || world == 4) test::run_nccl_ranks(world, test::check_overlap_changes_nothing);
  }
}

#if defined(ATHANOR_SIMT)
TEST_F(NcclTraining, AStoppedRankIsNamedWithItsBucket) {
  for (const Overlap overlap : {Overlap::thread, Overlap::pumped, Overlap::none}) {
    std::atomic<bool> end{false};
    test::run_nccl_ranks(2, [&](Transport& transport) {
      WholeModel model(2, 0, {.device = transport.device()});
      Communicator comm(transport, {.timeout = 3s});
      Ddp ddp(model.arena, comm, {.overlap = overlap});
      if (transport.rank() == 1) {
        while (!end) std::this_thread::sleep_for(1ms);
        return;
      }
      model.arena.zero_grad();
      const std::string error = test::message_of<PeerLostError>([&] {
        backward_scaled(test::whole_loss(model.net, test::whole_samples(0, 2)), model.step);
        ddp.reduce(model.step);
      });
      EXPECT_TRUE(test::names(error, {"rank_order all_reduce", "bucket 0", "rank 1", "3 s", "rank 0"}));
      end = true;
    });
  }
}
#endif

// Batch norms over all ranks -----------------------------------------------------------------------------

using NcclBatchNorm = test::DeviceTest;

TEST_F(NcclBatchNorm, EqualsOneRankOnTheJoinedBatch) {
  const std::vector<test::JoinCase> cases{{DType::f32, Activation::relu, true, 33},
                                          {DType::bf16, Activation::none, false, 6}};
  for (const int world : test::nccl_worlds()) {
    test::run_nccl_ranks(world,
                         [&](Transport& transport) { test::check_join_equals_one_rank(transport, cases); });
  }
}
TEST_F(NcclBatchNorm, OneValueOverAllRanksIsRefused) {
  test::run_nccl_ranks(test::nccl_worlds().back(), test::check_one_sample_is_refused);
}
// Buckets are under way while norms ask the other ranks, whoever pushes them and whatever adds them up.
TEST_F(NcclBatchNorm, TrainingEqualsOneRankOnTheJoinedBatch) {
  for (const int world : test::nccl_worlds()) {
    for (const Overlap overlap : {Overlap::none, Overlap::pumped, Overlap::thread}) {
      for (const Algorithm algorithm : {Algorithm::rank_order, Algorithm::native}) {
        test::run_nccl_ranks(world, [&](Transport& transport) {
          test::check_training_equals_one_rank<Ddp>(transport, true, overlap, {.algorithm = algorithm}, 4);
        });
      }
    }
  }
}
TEST_F(NcclBatchNorm, TrainsWithZeroOne) {
  test::run_nccl_ranks(test::nccl_worlds().back(), [](Transport& transport) {
    test::check_training_equals_one_rank<test::Zero1>(transport, true, Overlap::thread, {}, 4);
  });
}

}  // namespace athanor::nccl_training_test
