#include <array>
#include <atomic>
#include <thread>

#include "dist/collectives/barrier.h"
#include "dist/collectives/exchange.h"
#include "dist/collectives/rank_order.h"
#include "dist/collectives/ring.h"
#include "dist/collectives/wait.h"
#include "dist/transports/thread_transport.h"
#include "tests/support/collective_cases.h"
#include "tests/support/count_new.h"
#include "tests/support/errors.h"

namespace athanor::collective_test {

using namespace std::chrono_literals;
using dist::Collective;
using dist::Request;
using dist::run_ranks;
using dist::Tag;
using dist::ThreadJob;
using dist::Transport;
using test::Algorithm;
using test::Communicator;

constexpr int kWorlds[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(Collectives, ReduceOverAllRanks) {
  for (const int world : kWorlds) run_ranks(world, test::check_reductions);
}
TEST(Collectives, SixteenRanks) {
  run_ranks(16, test::check_reductions);
}
TEST(Collectives, TakeUnequalPieces) {
  for (const int world : kWorlds) run_ranks(world, test::check_unequal_pieces);
}
TEST(Collectives, NativeTakesATransportThatHasIt) {
  run_ranks(1, [](Transport& transport) {
    EXPECT_ERROR(ArgumentError, Communicator(transport, {.algorithm = Algorithm::native}), "communicator",
                 "native", "ring", "hierarchical", "rank_order");
  });
}
TEST(Collectives, RestartOnNewValues) {
  for (const int world : {1, 2, 4, 5}) run_ranks(world, test::check_restarts);
}
TEST(Collectives, BroadcastFromEveryRoot) {
  for (const int world : {1, 2, 3, 8}) run_ranks(world, test::check_broadcasts);
}
TEST(Collectives, AllRanksHaveTheSameBits) {
  for (const int world : {2, 3, 4, 8}) run_ranks(world, test::check_all_ranks_agree);
}
TEST(Collectives, RankOrderRoundsOnce) {
  for (const int world : {1, 2, 5, 8}) run_ranks(world, test::check_rank_order_rounds_once);
}

TEST(Collectives, GatherEveryRanksPart) {
  for (const int world : {1, 2, 3, 4}) run_ranks(world, test::check_gathers);
}
TEST(Collectives, NaNStays) {
  for (const int world : {1, 2, 5}) run_ranks(world, test::check_nan_stays);
}

TEST(Collectives, DelaysChangeNothing) {
  for (const std::uint64_t seed : {1, 2}) {
    run_ranks(4, test::check_all_ranks_agree, {.delay = 300us, .seed = seed});
    run_ranks(3, test::check_restarts, {.delay = 300us, .seed = seed});
  }
}

TEST(Collectives, NoRankLeavesABarrierEarly) {
  for (const int world : kWorlds) {
    std::atomic<int> arrived{0};
    run_ranks(world, [&](Transport& transport) {
      Communicator comm(transport);
      const auto barrier = comm.barrier();
      for (int round = 1; round <= 20; ++round) {
        if (round % world == transport.rank()) std::this_thread::sleep_for(100us);
        ++arrived;
        comm.run(*barrier);
        EXPECT_GE(arrived.load(), round * world);
        comm.run(*barrier);
      }
    });
  }
}

// Until then, another rank may write to it.
TEST(Collectives, MemoryLivesUntilMessagesAreReleased) {
  struct Waiting final : Transport {
    Waiting() : Transport(0, 2) {}
    Request isend(int, Tag, std::span<const std::byte>) override { return {0}; }
    Request irecv(int, Tag, std::span<std::byte>) override { return {0}; }
    bool test(Request&) override { return false; }
    void cancel(Request& request) noexcept override {
      request.slot = -1;
      held_bytes = allocator_of(kCpu).stats().current;
    }
    std::int64_t held_bytes = 0;
  } transport;
  const dist::Group both{0, 1, 2};
  const auto reduce_scatter = [&]<class Kind>() {
    return std::make_unique<Kind>(
        transport, both,
        dist::PhaseOf{dist::Phase::reduce_scatter, Tensor::zeros({1000}), kernels::Combine::sum,
                      make_flat(4096, DType::u8, kCpu), dist::equal_pieces(1000, 2), 1024});
  };
  std::unique_ptr<Collective> collectives[] = {std::make_unique<dist::Barrier>(transport, both),
                                               reduce_scatter.operator()<dist::Ring>(),
                                               reduce_scatter.operator()<dist::RankOrder>()};
  for (std::unique_ptr<Collective>& collective : collectives) {
    collective->start(0);
    EXPECT_FALSE(collective->advance());
    const std::string name = collective->name();
    const std::int64_t before = allocator_of(kCpu).stats().current;
    collective.reset();
    EXPECT_EQ(transport.held_bytes, before) << name;
  }
}

TEST(Exchange, GathersAValueOfEveryRank) {
  run_ranks(4, [&](Transport& transport) {
    Communicator comm(transport);
    const auto all = dist::gather_values(comm, std::array<std::int64_t, 2>{7, transport.rank()});
    ASSERT_EQ(all.size(), 4u);
    for (std::int64_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(all[static_cast<std::size_t>(rank)], (std::array<std::int64_t, 2>{7, rank}));
  });
}

TEST(Communicator, AutomaticIsRankOrderOnTheHost) {
  run_ranks(2, [](Transport& transport) {
    const Communicator comm(transport, {.algorithm = Algorithm::automatic});
    EXPECT_EQ(comm.options().algorithm, Algorithm::rank_order);
  });
}

// What they cost --------------------------------------------------------------------------------------------

/// Counts what a rank sends.
class Counting final : public Transport {
 public:
  explicit Counting(Transport& below) : Transport(below.rank(), below.world_size()), below_(below) {}

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override {
    ++messages;
    sent_bytes += static_cast<std::int64_t>(bytes.size());
    if (to / node_size != rank() / node_size) between_nodes += static_cast<std::int64_t>(bytes.size());
    return below_.isend(to, tag, bytes);
  }
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override {
    return below_.irecv(from, tag, bytes);
  }
  bool test(Request& request) override { return below_.test(request); }
  void cancel(Request& request) noexcept override { below_.cancel(request); }

  int node_size = 1;
  std::int64_t messages = 0, sent_bytes = 0, between_nodes = 0;

 private:
  Transport& below_;
};

template <class F> void expect_cost(int world, const dist::CommunicatorOptions& options, const F& expected) {
  constexpr std::int64_t kPerRank = 96;
  const std::int64_t n = kPerRank * world;
  run_ranks(world, [&](Transport& below) {
    Counting transport(below);
    transport.node_size = options.node_size;
    Communicator comm(transport, options);
    const Tensor x = test::ranks_part(below.rank(), n, DType::f32);
    const std::int64_t bytes = n * 4;
    comm.run(*comm.reduce_scatter(x));
    const auto [steps, between] = expected(bytes);
    EXPECT_EQ(transport.messages, steps) << name_of(options.algorithm) << " " << world;
    EXPECT_EQ(transport.sent_bytes, bytes * (world - 1) / world);
    EXPECT_EQ(transport.between_nodes, between);
    comm.run(*comm.all_gather(x));
    EXPECT_EQ(transport.messages, 2 * steps);
    EXPECT_EQ(transport.sent_bytes, 2 * bytes * (world - 1) / world);
    EXPECT_EQ(transport.between_nodes, 2 * between);
  });
}

struct Cost {
  std::int64_t steps, between;
};

TEST(Collectives, SendAsManyBytesAsTheirHeadersSay) {
  for (const int world : {1, 2, 4, 6, 8}) {
    const auto flat = [&](std::int64_t bytes) { return Cost{world - 1, bytes * (world - 1) / world}; };
    expect_cost(world, {.algorithm = Algorithm::ring}, flat);
    expect_cost(world, {.algorithm = Algorithm::rank_order}, flat);
    // 96 elements in segments of 16.
    expect_cost(world, {.algorithm = Algorithm::ring, .segment_bytes = 64}, [&](std::int64_t bytes) {
      return Cost{6 * (world - 1), bytes * (world - 1) / world};
    });
    for (const int node : {1, 2, 4}) {
      if (world % node != 0) continue;
      const int nodes = world / node;
      expect_cost(world, {.algorithm = Algorithm::hierarchical, .node_size = node}, [&](std::int64_t bytes) {
        return Cost{node - 1 + nodes - 1, bytes * (nodes - 1) / world};
      });
    }
  }
}

TEST(Collectives, ABroadcastForwardsEverySegmentOnce) {
  run_ranks(5, [](Transport& below) {
    Counting transport(below);
    Communicator comm(transport, {.segment_bytes = 64});
    comm.run(*comm.broadcast(test::ranks_part(below.rank(), 100, DType::f32), 3));
    const bool last = below.rank() == 2;
    EXPECT_EQ(transport.messages, last ? 0 : 7);
    EXPECT_EQ(transport.sent_bytes, last ? 0 : 400);
  });
}

TEST(Collectives, ABarrierTakesLogarithmicallyManySteps) {
  const std::pair<int, int> rounds[] = {{1, 0}, {2, 1}, {3, 2}, {4, 2}, {5, 3}, {8, 3}, {9, 4}};
  for (const auto& [world, expected] : rounds) {
    run_ranks(world, [&, steps = expected](Transport& below) {
      Counting transport(below);
      Communicator comm(transport);
      comm.run(*comm.barrier());
      EXPECT_EQ(transport.messages, steps);
      EXPECT_EQ(transport.sent_bytes, steps);
    });
  }
}

TEST(Collectives, AllocateNothingOnceWarm) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  for (const auto& options : test::all_algorithms(4)) {
    std::atomic<std::int64_t> before{0}, after{0};
    run_ranks(4, [&](Transport& transport) {
      Communicator comm(transport, options);
      const Tensor x = Tensor::zeros({5000}, {DType::bf16, kCpu});
      const auto sum = comm.all_reduce(x);
      const auto barrier = comm.barrier();
      for (int i = 0; i < 20; ++i) comm.run(*sum);
      comm.run(*barrier);
      if (transport.rank() == 0) before = test::operator_news();
      comm.run(*barrier);
      for (int i = 0; i < 20; ++i) comm.run(*sum);
      comm.run(*barrier);
      if (transport.rank() == 0) after = test::operator_news();
      comm.run(*barrier);
    });
    EXPECT_EQ(after - before, 0) << name_of(options.algorithm) << " " << options.segment_bytes;
  }
}

// What goes wrong -------------------------------------------------------------------------------------------

TEST(LostRanks, AStoppedRankIsNamedAfterTheTimeout) {
  ThreadJob job(4);
  job.stop(2);
  std::atomic<int> waiting{3};
  run_ranks(job, 4, [&](Transport& transport) {
    if (transport.rank() != 2) {
      Communicator comm(transport, {.algorithm = Algorithm::rank_order, .timeout = 1500ms});
      const Tensor x = test::ranks_part(transport.rank(), 64, DType::f32);
      EXPECT_ERROR(PeerLostError, comm.run(*comm.all_reduce(x), 7), "rank_order all_reduce", "bucket 7",
                   "rank 2", "1.5 s", fmt::format("rank {}", transport.rank()));
      --waiting;
    }
    while (waiting > 0) std::this_thread::sleep_for(1ms);  // who goes first is lost to the others
  });
}

TEST(LostRanks, InARingTheNextRankNamesIt) {
  ThreadJob job(4);
  job.stop(2);
  std::atomic<int> waiting{3};
  run_ranks(job, 4, [&](Transport& transport) {
    if (transport.rank() != 2) {
      Communicator comm(transport, {.algorithm = Algorithm::ring, .timeout = 1500ms});
      const Tensor x = test::ranks_part(transport.rank(), 64, DType::f32);
      const std::string error = test::message_of<PeerLostError>([&] { comm.run(*comm.all_reduce(x)); });
      // The others name the one before them, which is not heard of.
      EXPECT_TRUE(test::names(
          error, {"ring all_reduce", fmt::format("rank {}", (transport.rank() + 3) % 4), "1.5 s"}));
      --waiting;
    }
    while (waiting > 0) std::this_thread::sleep_for(1ms);
  });
}

// A collective that has failed may be kept, and its buffer read.
TEST(LostRanks, AbandonedMessagesAreNotDelivered) {
  std::atomic<int> turn{0};
  run_ranks(2, [&](Transport& transport) {
    const auto wait_for = [&](int mine) {
      while (turn < mine) std::this_thread::sleep_for(1ms);
    };
    std::array<std::byte, 8> sent{}, received{};
    sent.fill(std::byte{7});
    if (transport.rank() == 1) wait_for(1);
    Request from = transport.irecv(1 - transport.rank(), 1, received);
    Request to = transport.isend(1 - transport.rank(), 1, sent);
    if (transport.rank() == 0) {
      transport.session().give_up("test");
      turn = 1;
      wait_for(2);
    }
    EXPECT_FALSE(transport.test(from));
    EXPECT_FALSE(transport.test(to));
    EXPECT_EQ(received[0], std::byte{0});
    turn = turn + 1;
    wait_for(3);  // both have looked
    transport.cancel(from);
    transport.cancel(to);
  });
}

TEST(LostRanks, ALostRankIsNamedAtOnce) {
  run_ranks(4, [](Transport& transport) {
    if (transport.rank() == 2) return;
    Communicator comm(transport, {.algorithm = Algorithm::rank_order, .timeout = 200s});
    const Tensor x = test::ranks_part(0, 64, DType::f32);
    const std::string error = test::message_of<PeerLostError>([&] { comm.run(*comm.all_reduce(x), 3); });
    EXPECT_TRUE(test::names(error, {"rank_order all_reduce", "bucket 3"}));
    EXPECT_FALSE(test::holds(error, "200 s")) << error;
  });
}

TEST(LostRanks, TheFirstErrorIsThrown) {
  for (const int culprit : {0, 1, 3}) {
    const std::string error = test::message_of([&] {
      run_ranks(4, [&](Transport& transport) {
        Communicator comm(transport);
        const auto sum = comm.all_reduce(test::ranks_part(transport.rank(), 999, DType::f32));
        for (int i = 0; i < 5; ++i) comm.run(*sum);
        ATH_CHECK(transport.rank() != culprit, "test: rank {} fails", culprit);
        comm.run(*sum);
      });
    });
    EXPECT_TRUE(test::names(error, {"test", fmt::format("rank {}", culprit)}));
  }
}

TEST(LostRanks, MismatchedSizesAreAnError) {
  const auto send_other_sizes = [](Transport& transport) {
    Communicator comm(transport);
    comm.run(*comm.broadcast(test::ranks_part(0, 10 + transport.rank(), DType::f32), 0));
  };
  EXPECT_ERROR(Error, run_ranks(2, send_other_sizes), "transport", "rank 0", "40", "rank 1", "44");
}

TEST(Communicators, RejectUnsupportedRequests) {
  run_ranks(6, [](Transport& transport) {
    EXPECT_THROW(Communicator(transport, {.algorithm = Algorithm::hierarchical, .node_size = 4}),
                 ArgumentError);
    EXPECT_THROW(Communicator(transport, {.algorithm = Algorithm::hierarchical, .node_size = 0}),
                 ArgumentError);
    EXPECT_THROW(Communicator(transport, {.segment_bytes = 0}), ArgumentError);
    EXPECT_THROW(Communicator(transport, {.timeout = 0ms}), ArgumentError);
    Communicator comm(transport);
    EXPECT_THROW(comm.broadcast(Tensor::zeros({4}), 6), ArgumentError);
    EXPECT_THROW(comm.all_reduce(Tensor::zeros({4}, {DType::boolean, kCpu})), ArgumentError);
    EXPECT_THROW(comm.all_reduce(Tensor::zeros({4, 4})), ArgumentError);
  });
}

}  // namespace athanor::collective_test
