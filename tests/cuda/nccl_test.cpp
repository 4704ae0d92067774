// Collectives over NCCL, and what becomes of ranks that fail or do not come.
#include <atomic>
#include <chrono>
#include <cstring>

#include "dist/collectives/exchange.h"
#include "dist/collectives/wait.h"
#include "dist/launch/rendezvous.h"
#include "dist/transports/detail/nccl_api.h"
#include "dist/transports/make_transport.h"
#include "tests/cuda/nccl_ranks.h"
#include "tests/support/all_gather_cases.h"
#include "tests/support/collective_cases.h"
#include "tests/support/compare_calls_cases.h"
#include "tests/support/errors.h"

#if defined(ATHANOR_SIMT)
#include "simt/emulator/nccl/communicators.h"
#include "simt/emulator/options.h"
#endif

namespace athanor::nccl_test {

using namespace std::chrono_literals;
using dist::Transport;
using test::Algorithm;
using test::Communicator;

using NcclCollectives = test::DeviceTest;

TEST_F(NcclCollectives, ReduceOverAllRanks) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_reductions);
}
TEST_F(NcclCollectives, RestartOnNewValues) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_restarts);
}
TEST_F(NcclCollectives, BroadcastFromEveryRoot) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_broadcasts);
}
TEST_F(NcclCollectives, AllRanksHaveTheSameBits) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_all_ranks_agree);
}
TEST_F(NcclCollectives, RowsOfAllRanksAndTheirGradientsToTheBit) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_rows_and_gradients);
}
TEST_F(NcclCollectives, RankOrderRoundsOnce) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_rank_order_rounds_once);
}
TEST_F(NcclCollectives, GatherEveryRanksPart) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_gathers);
}
TEST_F(NcclCollectives, TakeUnequalPieces) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_unequal_pieces);
}
TEST_F(NcclCollectives, NaNStays) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_nan_stays);
}
TEST_F(NcclCollectives, NativeOnesAreInTheFlightRecord) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_native_records);
}
// What NCCL does not promise is done by ours.
TEST_F(NcclCollectives, MaximaOfFloatsAreNotNative) {
  test::run_nccl_ranks(1, [](Transport& transport) {
    Communicator comm(transport, {.algorithm = Algorithm::native});
    const auto name = [&](DType dtype, kernels::Combine how) {
      return std::string(comm.all_reduce(test::ranks_part(0, 8, dtype, transport.device()), how)->name());
    };
    EXPECT_EQ(name(DType::f32, kernels::Combine::max), "rank_order all_reduce");
    EXPECT_EQ(name(DType::f32, kernels::Combine::sum), "native all_reduce");
    EXPECT_EQ(name(DType::i32, kernels::Combine::max), "native all_reduce");
  });
}
TEST_F(NcclCollectives, ADuplicateIsASeparateNetwork) {
  for (const int world : test::nccl_worlds()) {
    test::run_nccl_ranks(world, [](Transport& transport) {
      const std::unique_ptr<Transport> other = transport.duplicate();
      EXPECT_EQ(other->rank(), transport.rank());
      EXPECT_EQ(other->world_size(), transport.world_size());
      EXPECT_FALSE(other->stream() == transport.stream());
      Communicator here(transport), there(*other, {.algorithm = Algorithm::native});
      const Tensor x = test::ranks_part(transport.rank(), 515, DType::f32, transport.device()),
                   y = test::ranks_part(transport.rank(), 515, DType::f32, transport.device());
      // Under way on one network, and meanwhile from start to end on the other; in the order that differs.
      const auto slow = here.all_reduce(x), fast = there.all_reduce(y);
      const auto begin = [&] {
        slow->filled();
        here.start(*slow);
      };
      if (transport.rank() % 2 == 0) begin();
      there.run(*fast);
      if (transport.rank() % 2 != 0) begin();
      dist::finish(*slow, transport);
      for (const Tensor& sum : {x, y})
        EXPECT_EQ(test::first_wrong(sum.to(kCpu), {0, 515}, kernels::Combine::sum, transport.world_size()),
                  -1);
    });
  }
}
TEST_F(NcclCollectives, Barriers) {
  for (const int world : test::nccl_worlds()) test::run_nccl_ranks(world, test::check_barriers);
}

TEST_F(NcclCollectives, AllMismatchedRanksReportIt) {
  if (cuda_device_count() < 3) GTEST_SKIP() << "needs three GPUs";
  for (const test::OtherCall& call : test::other_calls())
    test::run_nccl_ranks(3, [&](Transport& transport) { test::check_other_call(transport, call); });
}
TEST_F(NcclCollectives, ComparingChangesNothing) {
  for (const int world : test::nccl_worlds())
    test::run_nccl_ranks(world, test::check_comparing_changes_nothing);
}

/// Makes a communicator, for a test in which that fails.
void start(const dist::NcclId& id, int rank, int world, std::chrono::milliseconds timeout) {
  const dist::NcclTransport transport(id, rank, world, {.device = test::device(), .timeout = timeout});
}

TEST_F(NcclCollectives, AMissingRankIsDetected) {
  EXPECT_ERROR(PeerLostError, start(dist::new_nccl_id(), 0, 2, 500ms), "nccl start", "2 ranks", "0.5 s",
               "rank 0");
}
TEST_F(NcclCollectives, RefuseARankOutOfRange) {
  EXPECT_ERROR(ArgumentError, start(dist::new_nccl_id(), 2, 2, 500ms), "nccl", "rank", "2");
}

// Kernels of messages must not queue behind those of the backward pass.
TEST_F(NcclCollectives, TheStreamHasAHigherPriorityThanThoseThatCompute) {
  const auto priority = [](const Stream& stream) {
    int value = 0;
    EXPECT_EQ(cudaStreamGetPriority(static_cast<cudaStream_t>(stream.native()), &value), cudaSuccess);
    return value;
  };
  test::run_nccl_ranks(1, [&](Transport& transport) {
    EXPECT_LT(priority(transport.stream()), priority(Stream::default_of(transport.device())));
  });
}

#if defined(ATHANOR_SIMT)
// --dist-timeout is NCCL's, too: one rank comes to where they meet, and no further.
TEST_F(NcclCollectives, StartupEndsAtItsTimeout) {
  const dist::Listening meeting = dist::listen_anywhere();
  dist::RankInfo info{.launcher = dist::Launcher::torchrun, .rank = 1, .world_size = 2};
  info.host = "127.0.0.1";
  info.port = meeting.port;
  std::thread other([info] { (void)dist::share_from_rank_0(info, {}, 60s); });
  info.rank = 0;
  info.listening = meeting.socket;
  dist::ProcessGroup job{.info = info, .timeout = 2s};
  EXPECT_ERROR(PeerLostError, dist::networks().join(job, test::device()), "nccl start", "2 ranks", "2 s",
               "rank 0");
  other.join();
}

TEST_F(NcclCollectives, ASilentRankIsNamedByTheFirstThatNeedsIt) {
  const dist::NcclId id = dist::new_nccl_id();
  ncclUniqueId unique;
  std::memcpy(&unique, id.data(), sizeof unique);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t silent = nullptr;
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  ASSERT_EQ(ncclCommInitRankConfig(&silent, 2, unique, 1, &config), ncclInProgress);
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    dist::NcclTransport transport(id, 0, 2, {.device = test::device(), .timeout = 500ms});
    Communicator comm(transport, {.timeout = 500ms});
    EXPECT_TRUE(
        test::names(test::error_of(comm, *comm.barrier(), -1), {"barrier", "rank 1", "0.5 s", "rank 0"}));
  }
  ncclCommAbort(silent);
  EXPECT_EQ(simt::live_communicators(), 0);
}

// NCCL keeps memory of the GPU for every rank that one exchanges messages with.
TEST_F(NcclCollectives, OnlyRanksThatExchangeMessagesAreConnected) {
  const std::vector<std::pair<Algorithm, int>> expected{
      {Algorithm::native, 0}, {Algorithm::ring, 2}, {Algorithm::rank_order, 3}};
  for (const auto& [algorithm, ranks] : expected) {
    test::run_nccl_ranks(4, [&, how = algorithm, most = ranks](dist::NcclTransport& transport) {
      EXPECT_EQ(transport.connected(), 0);
      Communicator comm(transport, {.algorithm = how});
      comm.run(*comm.all_reduce(test::ranks_part(transport.rank(), 64, DType::f32, transport.device())));
      EXPECT_EQ(transport.connected(), most);
      if (how != Algorithm::native) return;
      comm.run(*comm.broadcast(test::ranks_part(0, 64, DType::f32, transport.device()), 1));
      dist::Exchange(comm, 8).run();
      (void)transport.duplicate();
      EXPECT_EQ(transport.connected(), 0);
    });
  }
}

TEST_F(NcclCollectives, AutomaticIsNativeBetweenNodes) {
  test::run_nccl_ranks(2, [](Transport& transport) {
    const auto chosen = [&](int node_size) {
      return Communicator(transport, {.algorithm = Algorithm::automatic, .node_size = node_size})
          .options()
          .algorithm;
    };
    EXPECT_EQ(chosen(2), Algorithm::rank_order);
    EXPECT_EQ(chosen(1), Algorithm::native);
  });
}

TEST_F(NcclCollectives, CommunicatorsAreConcurrentFrom226On) {
  EXPECT_FALSE(dist::nccl_is_concurrent(22099));
  EXPECT_FALSE(dist::nccl_is_concurrent(22599));
  EXPECT_TRUE(dist::nccl_is_concurrent(22600));
}

TEST_F(NcclCollectives, TwoRanksOnOneGpuAreRefused) {
  const dist::NcclId id = dist::new_nccl_id();
  test::run_on_devices(
      2, [](int) { return test::device(); },
      [&](int rank) {
        EXPECT_ERROR(BackendError, start(id, rank, 2, 20s), "nccl start", "rank 0", "rank 1",
                     "CUDA device 0");
      });
}

TEST_F(NcclCollectives, AStoppedRankIsNamedAfterTheTimeout) {
  for (const Algorithm algorithm : {Algorithm::rank_order, Algorithm::ring}) {
    std::atomic<int> waiting{3};
    test::run_nccl_ranks(4, [&](Transport& transport) {
      if (transport.rank() == 2) {
        while (waiting > 0) std::this_thread::sleep_for(1ms);
        return;
      }
      Communicator comm(transport, {.algorithm = algorithm, .timeout = 700ms});
      const Tensor x = test::ranks_part(transport.rank(), 64, DType::f32, transport.device());
      const std::string error = test::error_of(comm, *comm.all_reduce(x), 7);
      EXPECT_TRUE(test::names(error, {fmt::format("{} all_reduce", name_of(algorithm)), "bucket 7"}));
      if (transport.rank() == 3) {
        EXPECT_TRUE(test::names(error, {"rank 2", "0.7 s", "rank 3"}));
      }
      EXPECT_THROW(comm.run(*comm.barrier()), PeerLostError);
      --waiting;
    });
    EXPECT_EQ(simt::live_communicators(), 0);
  }
}

// What NCCL finds out by itself, while a message is under way.
TEST_F(NcclCollectives, ErrorsOfNcclArePassedOn) {
  std::atomic<bool> end{false};
  test::run_nccl_ranks(2, [&](Transport& transport) {
    if (transport.rank() == 1) {
      while (!end) std::this_thread::sleep_for(1ms);
      return;
    }
    Communicator comm(transport);
    const auto sum = comm.all_reduce(test::ranks_part(0, 64, DType::f32, transport.device()));
    std::thread breaks([] {
      std::this_thread::sleep_for(100ms);
      simt::break_communicators(0, ncclRemoteError, "connection closed by peer");
    });
    EXPECT_TRUE(test::names(test::error_of(comm, *sum, 3),
                            {"rank_order all_reduce", "bucket 3", "nccl", "connection closed by peer"}));
    breaks.join();
    end = true;
  });
  test::run_nccl_ranks(1, [&](Transport& transport) {
    simt::break_communicators(0, ncclInternalError, "what NCCL says");
    transport.session().give_up("test");
  });
  EXPECT_EQ(simt::live_communicators(), 0);
}

// Once all ranks have come, a call to the system that fails is a link that is lost.
TEST_F(NcclCollectives, ALostLinkIsALostPeer) {
  std::atomic<bool> end{false};
  test::run_nccl_ranks(2, [&](Transport& transport) {
    if (transport.rank() == 1) {
      while (!end) std::this_thread::sleep_for(1ms);
      return;
    }
    Communicator comm(transport);
    const auto sum = comm.all_reduce(test::ranks_part(0, 64, DType::f32, transport.device()));
    simt::break_communicators(0, ncclSystemError, "socket: connection timed out");
    try {
      comm.run(*sum, 3);
      ADD_FAILURE() << "nobody was missed";
    } catch (const PeerLostError& error) {
      EXPECT_TRUE(test::names(error.what(), {"socket: connection timed out"}));
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    end = true;
  });
}

TEST_F(NcclCollectives, MismatchedSizesAreAnError) {
  test::run_nccl_ranks(2, [&](Transport& transport) {
    Communicator comm(transport);
    const auto broadcast =
        comm.broadcast(test::ranks_part(0, 10 + transport.rank(), DType::f32, transport.device()), 0);
    EXPECT_ERROR(BackendError, comm.run(*broadcast), "rank 0", "40 bytes", "rank 1", "44");
  });
}

TEST_F(NcclCollectives, ARankThatDoesNotDuplicateIsNamed) {
  std::atomic<bool> end{false};
  test::run_nccl_ranks(
      2,
      [&](Transport& transport) {
        if (transport.rank() == 1) {
          while (!end) std::this_thread::sleep_for(1ms);
          return;
        }
        EXPECT_ERROR(PeerLostError, transport.duplicate(), "native all_gather", "3 s", "rank 0");
        end = true;
      },
      3s);
  EXPECT_EQ(simt::live_communicators(), 0);
}

TEST_F(NcclCollectives, AStoppedRankIsDetectedInANativeCollective) {
  std::atomic<int> waiting{3};
  test::run_nccl_ranks(4, [&](Transport& transport) {
    if (transport.rank() == 2) {
      while (waiting > 0) std::this_thread::sleep_for(1ms);
      return;
    }
    Communicator comm(transport, {.algorithm = Algorithm::native, .timeout = 700ms});
    const Tensor x = test::ranks_part(transport.rank(), 64, DType::f32, transport.device());
    EXPECT_TRUE(
        test::names(test::error_of(comm, *comm.all_reduce(x), 7),
                    {"native all_reduce", "bucket 7", "0.7 s", fmt::format("rank {}", transport.rank())}));
    EXPECT_THROW(comm.run(*comm.barrier()), PeerLostError);
    --waiting;
  });
  EXPECT_EQ(simt::live_communicators(), 0);
}

TEST_F(NcclCollectives, ErrorsInANativeCollectiveArePassedOn) {
  std::atomic<bool> end{false};
  test::run_nccl_ranks(2, [&](Transport& transport) {
    if (transport.rank() == 1) {
      while (!end) std::this_thread::sleep_for(1ms);
      return;
    }
    Communicator comm(transport, {.algorithm = Algorithm::native});
    const auto sum = comm.all_reduce(test::ranks_part(0, 64, DType::f32, transport.device()));
    std::thread breaks([] {
      std::this_thread::sleep_for(100ms);
      simt::break_communicators(0, ncclRemoteError, "connection closed by peer");
    });
    EXPECT_TRUE(test::names(test::error_of(comm, *sum, 3),
                            {"native all_reduce", "bucket 3", "nccl", "connection closed by peer"}));
    breaks.join();
    end = true;
  });
  EXPECT_EQ(simt::live_communicators(), 0);
}

// A collective that nobody finishes: what it has queued must be gone before its memory is.
TEST_F(NcclCollectives, DestroyingACollectiveEndsItsMessages) {
  for (const Algorithm algorithm : {Algorithm::rank_order, Algorithm::native}) {
    std::atomic<bool> end{false};
    test::run_nccl_ranks(2, [&](Transport& transport) {
      if (transport.rank() == 1) {
        while (!end) std::this_thread::sleep_for(1ms);
        return;
      }
      Communicator comm(transport, {.algorithm = algorithm});
      {
        const Tensor x = test::ranks_part(0, 64, DType::f32, transport.device());
        const auto sum = comm.all_reduce(x);
        sum->filled();
        sum->start(comm.session().next_tag());
        for (int i = 0; i < 10; ++i) EXPECT_FALSE(sum->advance());
      }
      EXPECT_EQ(simt::live_communicators(), 1) << "that of the other rank";
      EXPECT_TRUE(test::names(transport.session().failure(), {"collective"}));
      EXPECT_THROW(comm.run(*comm.barrier()), PeerLostError);
      end = true;
    });
  }
}
#endif

}  // namespace athanor::nccl_test
