// The bodies of collective_test, with ranks as processes: run by mpirun, once per world size.
#include <array>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "dist/transports/mpi_transport.h"
#include "tests/support/collective_cases.h"
#include "tests/support/mpi_main.h"

namespace athanor::collective_mpi_test {

dist::Transport& transport() {
  return test::mpi_transport();
}

TEST(MpiCollectives, ReduceOverAllRanks) {
  test::check_reductions(transport());
}
TEST(MpiCollectives, GatherEveryRanksPart) {
  test::check_gathers(transport());
}
TEST(MpiCollectives, TakeUnequalPieces) {
  test::check_unequal_pieces(transport());
}
TEST(MpiCollectives, RestartOnNewValues) {
  test::check_restarts(transport());
}
TEST(MpiCollectives, BroadcastFromEveryRoot) {
  test::check_broadcasts(transport());
}
TEST(MpiCollectives, AllRanksHaveTheSameBits) {
  test::check_all_ranks_agree(transport());
}
TEST(MpiCollectives, RankOrderRoundsOnce) {
  test::check_rank_order_rounds_once(transport());
}
TEST(MpiCollectives, NaNStays) {
  test::check_nan_stays(transport());
}
TEST(MpiCollectives, NativeOnesAreInTheFlightRecord) {
  test::check_native_records(transport());
}
TEST(MpiCollectives, Barriers) {
  test::check_barriers(transport());
}

TEST(MpiCollectives, LongMessagesTravelInChunks) {
  dist::MpiTransport chunked({.chunk_bytes = 100});
  dist::Communicator comm(chunked);
  for (const std::int64_t n : {1, 25, 26, 1000}) {
    const Tensor x = test::ranks_part(chunked.rank(), n * chunked.world_size(), DType::f32);
    comm.run(*comm.all_reduce(x));
    EXPECT_EQ(test::first_wrong(x, {0, x.numel()}, kernels::Combine::sum, chunked.world_size()), -1) << n;
  }
}

// With chunks, of which any may be the one that is waited for.
TEST(MpiCollectives, WaitingInsideMpiChangesNothing) {
  dist::MpiTransport waits({.chunk_bytes = 100, .wait_inside = true});
  EXPECT_FALSE(waits.wait_for_any());
  test::check_reductions(waits);
  test::check_broadcasts(waits);
  test::check_barriers(waits);
}

// And not for others behind it, nor does it come back with nothing.
TEST(MpiCollectives, WaitingInsideMpiIsForTheOldestMessage) {
  using namespace std::chrono_literals;
  dist::MpiTransport waits({.wait_inside = true});
  if (waits.world_size() == 1) GTEST_SKIP() << "takes two ranks";
  std::array<std::byte, 2> bytes{};
  std::vector<std::byte> large(4 << 20);  // does not leave before it is asked for
  const auto finish = [&](dist::Request request) {
    while (!waits.test(request)) EXPECT_TRUE(waits.wait_for_any());
  };
  if (waits.rank() == 0) {
    std::array<dist::Request, 2> coming{waits.irecv(1, 1, {bytes.data(), 1}),
                                        waits.irecv(1, 2, {&bytes[1], 1})};
    EXPECT_TRUE(waits.wait_for_any());
    EXPECT_TRUE(waits.test(coming[0]));
    EXPECT_FALSE(waits.test(coming[1]));
    dist::Request looked = transport().isend(1, 4, {&bytes[0], 1});
    while (!transport().test(looked)) std::this_thread::yield();
    EXPECT_TRUE(waits.wait_for_any());
    EXPECT_TRUE(waits.test(coming[1]));
    EXPECT_FALSE(waits.wait_for_any());
    dist::Request going = waits.isend(1, 3, large);
    EXPECT_TRUE(waits.wait_for_any());
    EXPECT_TRUE(waits.test(going));
  } else if (waits.rank() == 1) {
    std::this_thread::sleep_for(200ms);
    finish(waits.isend(0, 1, {bytes.data(), 1}));
    dist::Request looked = transport().irecv(0, 4, {bytes.data(), 1});  // that only the first has come
    while (!transport().test(looked)) std::this_thread::yield();
    std::this_thread::sleep_for(2s);
    finish(waits.isend(0, 2, {&bytes[1], 1}));
    std::this_thread::sleep_for(200ms);
    finish(waits.irecv(0, 3, large));
  }
  dist::Communicator comm(waits);
  comm.run(*comm.barrier());
}

TEST(MpiCollectives, MismatchedSizesAreAnError) {
  if (transport().world_size() != 2) GTEST_SKIP() << "takes two ranks";
  dist::Communicator comm(transport(), {.segment_bytes = 1 << 20});
  const Tensor x = test::ranks_part(0, 20 - 10 * transport().rank(), DType::f32);
  for (int i = 0; i < 1000; ++i) (void)comm.session().next_tag();
  if (transport().rank() == 0) {
    comm.run(*comm.broadcast(x, 0));
  } else {
    EXPECT_THROW(comm.run(*comm.broadcast(x, 0)), Error);
  }
}

// All on one, unless tests/programs/two_hosts.sh says otherwise.
TEST(MpiCollectives, KnowTheirPlaceOnTheMachine) {
  const auto& mpi = test::mpi_transport();
  const char* set = std::getenv("ATHANOR_TEST_RANKS_PER_HOST");
  const int per_host = set ? std::atoi(set) : mpi.world_size();
  EXPECT_EQ(mpi.local_size(), per_host);
  EXPECT_EQ(mpi.local_rank(), mpi.rank() % per_host);
}

}  // namespace athanor::collective_mpi_test
