#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "dist/collectives/communicator.h"
#include "dist/transports/thread_transport.h"
#include "tensor/tensor.h"

namespace {

using namespace athanor;
using dist::Algorithm;
using dist::Communicator;
using dist::Range;
using dist::Request;
using dist::Tag;
using dist::Transport;

float part_of(int rank, std::int64_t i) {
  return static_cast<float>((rank * 5 + i * 3) % 7 + 1);
}

Tensor part(int rank, std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(part_of(rank, i));
  return Tensor::from(values, {n});
}

// A rank's network, which counts and looks at the order.
class Watched final : public Transport {
 public:
  Watched(Transport& network, std::int64_t per_step)
      : Transport(network.rank(), network.world_size()), network_(network), per_step_(per_step) {}

  Request isend(int to, Tag tag, std::span<const std::byte> bytes) override {
    sent_bytes_ += static_cast<std::int64_t>(bytes.size());
    if (sent_ >= per_step_ && arrived_ < sent_ - per_step_ + 1) ++too_early_;
    ++sent_;
    return note(network_.isend(to, tag, bytes), false);
  }
  Request irecv(int from, Tag tag, std::span<std::byte> bytes) override {
    return note(network_.irecv(from, tag, bytes), true);
  }
  bool test(Request& request) override {
    const std::int32_t slot = request.slot;
    if (!network_.test(request)) return false;
    if (slot >= 0 && receives_[slot]) ++arrived_;
    return true;
  }
  void cancel(Request& request) noexcept override { network_.cancel(request); }

  std::int64_t sent_bytes() const { return sent_bytes_; }
  std::int64_t too_early() const { return too_early_; }

 private:
  Request note(Request request, bool receives) {
    receives_[request.slot] = receives;
    return request;
  }

  Transport& network_;
  std::int64_t per_step_, sent_ = 0, arrived_ = 0, sent_bytes_ = 0, too_early_ = 0;
  std::map<std::int32_t, bool> receives_;
};

const dist::CommunicatorOptions kRing{.algorithm = Algorithm::ring, .timeout = std::chrono::seconds(5)};

// What is wrong with element i of a sum over ranks, or nothing.
std::string wrong(float value, int world, int rank, std::int64_t i) {
  float sum = 0;
  for (int r = 0; r < world; ++r) sum += part_of(r, i);
  if (value == sum) return "";
  const std::string where =
      "element " + std::to_string(i) + " of rank " + std::to_string(rank) + " of " + std::to_string(world);
  if (value > sum)
    return where + " has some rank's values twice: a piece went all the way around, a step too many";
  return where +
         " lacks some rank's values: a piece was passed on before it was complete, or the ring ended a step "
         "too early";
}

TEST(Ring, ReduceScatterAddsEachRankOnce) {
  for (const int world : {2, 3, 4, 7}) {
    dist::run_ranks(world, [&](Transport& network) {
      const int rank = network.rank();
      for (const std::int64_t n : {0, 1, 24, 131}) {
        Communicator ring(network, kRing);
        const Tensor x = part(rank, n);
        ring.run(*ring.reduce_scatter(x, kernels::Combine::sum));
        const Range mine = ring.piece(n, rank);
        for (std::int64_t i = mine.begin; i < mine.end; ++i)
          ASSERT_EQ(wrong(x.data<float>()[i], world, rank, i), "");
      }
    });
  }
}

TEST(Ring, AllGatherGivesEverythingToAll) {
  for (const int world : {2, 3, 5}) {
    dist::run_ranks(world, [&](Transport& network) {
      Communicator ring(network, kRing);
      const std::int64_t n = 47;
      const Tensor x = part(network.rank(), n);
      ring.run(*ring.all_gather(x));
      for (int r = 0; r < world; ++r) {
        const Range piece = ring.piece(n, r);
        for (std::int64_t i = piece.begin; i < piece.end; ++i)
          ASSERT_EQ(x.data<float>()[i], part_of(r, i)) << "element " << i << " must be rank " << r << "'s";
      }
    });
  }
}

TEST(Ring, SendsNoMoreThanTheLowerBound) {
  for (const int world : {2, 3, 4, 6, 1}) {
    dist::run_ranks(world, [&](Transport& network) {
      const std::int64_t n = 120, bound = n * (world - 1) / world * 4;
      for (const bool reduces : {true, false}) {
        Watched watched(network, 1);
        Communicator ring(watched, kRing);
        const Tensor x = part(network.rank(), n);
        ring.run(reduces ? *ring.reduce_scatter(x, kernels::Combine::sum) : *ring.all_gather(x));
        EXPECT_LE(watched.sent_bytes(), bound)
            << (reduces ? "reduce_scatter" : "all_gather") << " of " << world
            << " ranks sends a piece too many: P - 1 steps are enough";
        EXPECT_GE(watched.sent_bytes(), bound) << "less than the lower bound: something is missing";
      }
    });
  }
}

TEST(Ring, PassesOnOnlyWhatHasArrived) {
  for (const std::int64_t per_step : {1, 3}) {
    dist::run_ranks(4, [&](Transport& network) {
      const std::int64_t n = 64 * per_step;
      dist::CommunicatorOptions options = kRing;
      options.segment_bytes = 64;  // a piece is per_step segments
      Watched watched(network, per_step);
      Communicator ring(watched, options);
      const Tensor x = part(network.rank(), n);
      ring.run(*ring.reduce_scatter(x, kernels::Combine::sum));
      EXPECT_EQ(watched.too_early(), 0) << "segments were sent before the one had arrived that belongs to "
                                           "them: what a rank sends in step s "
                                           "it receives in step s - 1";
    });
  }
}

}  // namespace
