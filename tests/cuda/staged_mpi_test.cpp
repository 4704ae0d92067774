// Ranks that are processes, with their tensors on one device that they share: run by mpirun, once per world
// size.
#include "dist/transports/make_transport.h"
#include "dist/transports/staged_transport.h"
#include "tests/cuda/device.h"
#include "tests/support/collective_cases.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/mpi_main.h"

namespace athanor::staged_mpi_test {

using StagedMpi = test::DeviceTest;

template <class F> void staged(const F& f) {
  dist::StagedTransport transport(test::mpi_transport(), test::device());
  f(transport);
}

TEST_F(StagedMpi, CollectivesReduceOverAllRanks) {
  staged(test::check_reductions);
}
TEST_F(StagedMpi, CollectivesGatherEveryRanksPart) {
  staged(test::check_gathers);
}
TEST_F(StagedMpi, CollectivesTakeUnequalPieces) {
  staged(test::check_unequal_pieces);
}
TEST_F(StagedMpi, BroadcastsFromEveryRoot) {
  staged(test::check_broadcasts);
}
TEST_F(StagedMpi, RestartOnNewValues) {
  staged(test::check_restarts);
}
TEST_F(StagedMpi, NaNStays) {
  staged(test::check_nan_stays);
}
// MPI's own collectives know the host's memory only.
TEST_F(StagedMpi, HaveNoNativeOnes) {
  staged([](dist::Transport& transport) {
    EXPECT_THROW(test::Communicator(transport, {.algorithm = dist::Algorithm::native}), ArgumentError);
    const test::Communicator chosen(transport, {.algorithm = dist::Algorithm::automatic});
    EXPECT_EQ(chosen.options().algorithm, dist::Algorithm::rank_order);
  });
}
TEST_F(StagedMpi, AllRanksHaveTheSameBits) {
  staged(test::check_all_ranks_agree);
}
TEST_F(StagedMpi, ZeroOneEqualsDdpBitForBit) {
  staged([](dist::Transport& transport) { test::check_zero1_equals_ddp_over(transport, 12); });
}
TEST_F(StagedMpi, DdpEqualsOneRankOnTheJoinedBatch) {
  staged(test::check_ddp_equals_one_rank);
}

// What a training program gets under mpirun: pinned memory, where ranks share a device.
TEST_F(StagedMpi, RanksUnderMpirunGetANetworkForTheirDevice) {
  const dist::RankInfo info = dist::find_rank_info();
  const auto index = static_cast<std::int16_t>(info.local_rank % cuda_device_count());
  dist::ProcessGroup job{.info = info};
  dist::networks().join(job, {DeviceType::cuda, index});
  EXPECT_EQ(job.transport->device(), (Device{DeviceType::cuda, index}));
  EXPECT_TRUE(job.below) << "MPI stays alive";
  test::check_restarts(*job.transport);
}

}  // namespace athanor::staged_mpi_test
