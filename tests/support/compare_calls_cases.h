#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/collective_cases.h"
#include "tests/support/data_parallel_cases.h"
#include "tests/support/errors.h"

// What ranks say that compare their calls (ATHANOR_DIST_DEBUG=1): bodies that each of them runs, over
// whatever network, with memory of the host or of a device.

namespace athanor::test {

/// What the three ranks start; and the culprit, rank 1, as the others do not.
struct OtherCall {
  std::function<void(Communicator&, bool culprit)> start;
  std::string of_culprit, of_others;
};

inline std::vector<OtherCall> other_calls() {
  const auto sum = [](Communicator& comm, std::int64_t count, DType dtype, std::int64_t bucket) {
    const Tensor x = Tensor::zeros({count}, {dtype, comm.transport().device()});
    comm.run(*comm.all_reduce(x), bucket);
  };
  return {
      {[=](Communicator& comm, bool culprit) {
         culprit ? comm.run(*comm.barrier()) : sum(comm, 64, DType::f32, 4);
       },
       "barrier #1", "rank_order all_reduce #1, bucket 4, 64 f32"},
      {[=](Communicator& comm, bool culprit) { sum(comm, 64, DType::f32, culprit ? 3 : 4); },
       "rank_order all_reduce #1, bucket 3, 64 f32", "rank_order all_reduce #1, bucket 4, 64 f32"},
      {[=](Communicator& comm, bool culprit) { sum(comm, 64, culprit ? DType::i32 : DType::f32, -1); },
       "rank_order all_reduce #1, 64 i32", "rank_order all_reduce #1, 64 f32"},
      {[=](Communicator& comm, bool culprit) { sum(comm, culprit ? 32 : 64, DType::f32, -1); },
       "rank_order all_reduce #1, 32 f32", "rank_order all_reduce #1, 64 f32"},
  };
}

/// The error names what both ranks start, its own first.
inline void expect_other_call(const std::string& error, int rank, const std::string& mine, int other,
                              const std::string& theirs) {
  EXPECT_TRUE(names(error, {fmt::format("rank {}", rank), mine, fmt::format("rank {}", other), theirs}));
  EXPECT_LT(error.find(mine), error.find(theirs)) << error;
}

/// Three ranks. All of them say who starts what, once, and end there.
inline void check_other_call(dist::Transport& transport, const OtherCall& call) {
  Communicator comm(transport, {.timeout = std::chrono::seconds(200), .compare_calls = true});
  comm.run(*comm.barrier());
  int failures = 0;
  transport.session().on_failure = [&](dist::Failure kind, const std::exception&) {
    failures += kind == dist::Failure::error;
  };
  const bool culprit = transport.rank() == 1;
  expect_other_call(message_of([&] { call.start(comm, culprit); }), transport.rank(),
                    culprit ? call.of_culprit : call.of_others, culprit ? 0 : 1,
                    culprit ? call.of_others : call.of_culprit);
  EXPECT_EQ(failures, 1);
  transport.session().on_failure = nullptr;
  EXPECT_THROW(comm.run(*comm.barrier()), PeerLostError);
}

/// Two ranks. The last is done with training a step before the other, which finds out in its first bucket,
/// whoever pushes that.
inline void check_missing_step(dist::Transport& transport, dist::Overlap overlap) {
  WholeModel model(2, 0, {.device = transport.device()});
  Communicator comm(transport, {.timeout = std::chrono::seconds(200), .compare_calls = true});
  dist::Ddp ddp(model.arena, comm, {.overlap = overlap});
  const bool culprit = transport.rank() == 1;
  const auto step = [&] {
    model.arena.zero_grad();
    backward_scaled(whole_loss(model.net, whole_samples(2 * transport.rank(), 2)), model.step);
    ddp.reduce(model.step);
  };
  step();
  const std::string error = message_of([&] { culprit ? comm.run(*comm.barrier()) : step(); });
  expect_other_call(error, transport.rank(), culprit ? "barrier" : "rank_order all_reduce", culprit ? 0 : 1,
                    culprit ? "rank_order all_reduce" : "barrier");
}

/// Sums are the same, and a collective is one entry on record.
inline void check_comparing_changes_nothing(dist::Transport& transport) {
  for (const CommunicatorOptions& options : all_algorithms(transport)) {
    CommunicatorOptions comparing = options;
    comparing.compare_calls = true;
    Communicator comm(transport, comparing);
    const int world = transport.world_size();
    const Tensor x = ranks_part(transport.rank(), 100, DType::f32, transport.device());
    const std::int64_t before = transport.session().flight().size();
    const auto sum = comm.all_reduce(x);
    for (int i = 0; i < 3; ++i) comm.run(*sum, i);
    const std::vector<double> values = x.to(kCpu).to_vector();
    for (std::int64_t i = 0; i < 100; ++i) {
      double expected = 0;
      for (int rank = 0; rank < world; ++rank) expected += part_of_rank(rank, i);
      ASSERT_EQ(values[static_cast<std::size_t>(i)], expected * world * world) << i;
    }
    EXPECT_EQ(transport.session().flight().size(), before + 3);
    const dist::FlightRecord::Entry entry = transport.session().flight().last();
    EXPECT_FALSE(entry.under_way());
    EXPECT_EQ(entry.call.bucket, 2);
    if (world > 1 && options.algorithm == Algorithm::rank_order) {
      // Its own, both ways twice, and those of comparing, 80 bytes each.
      const std::int64_t own = 2 * 2 * 100 * 4 * (world - 1) / world;
      EXPECT_GE(entry.bytes, own + 2 * 64 * (world - 1));
    }
  }
}

}  // namespace athanor::test
