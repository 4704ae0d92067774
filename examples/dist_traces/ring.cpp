#include <array>
#include <cstring>
#include <memory>

#include "dist/transports/thread_transport.h"
#include "examples/dist_traces/traces.h"
#include "tensor/base/error.h"

// The ring as its state machines ran it: four ranks, one element per piece. Rank r begins with 2^r in every
// element, so the bits of a sum show whose values are in it.

namespace athanor::examples {
namespace {

constexpr int kRingRanks = 4, kAll = (1 << kRingRanks) - 1;
using Pieces =
    std::array<std::array<int, kRingRanks>, kRingRanks>;  // of rank r, piece p: a bit for each rank in it

struct Step {
  Pieces after;
  std::array<int, kRingRanks> arrived;  // of rank r: the piece
};

void check(bool holds, const char* what) {
  if (!holds) detail::fail<>("ring_trace: {}", what);
}

/// The effect of `steps` on `pieces`, from the recorded messages.
nlohmann::json replay(Pieces& pieces, const std::vector<std::unique_ptr<Traced>>& ranks,
                      const std::vector<Tensor>& buffers, bool adds) {
  nlohmann::json half{{"before", pieces}, {"steps", nlohmann::json::array()}};
  for (std::size_t s = 0; s + 1 < kRingRanks; ++s) {
    Step step{pieces, {}};
    for (std::size_t r = 0; r < kRingRanks; ++r) {
      const Traced::Message& message = ranks[r]->messages.at(s);
      check(message.to == static_cast<int>((r + 1) % kRingRanks) &&
                message.bytes.size() == sizeof(std::int32_t),
            "a message must be one piece for the next rank");
      std::int32_t value = 0;
      std::memcpy(&value, message.bytes.data(), sizeof(value));
      const auto piece = static_cast<std::size_t>((message.from - buffers[r].raw_data()) / 4);
      const auto to = static_cast<std::size_t>(message.to);
      check(value == pieces[r][piece], "a rank must send what it has");
      step.after[to][piece] = adds ? step.after[to][piece] | value : value;
      step.arrived[to] = static_cast<int>(piece);
    }
    pieces = step.after;
    half["steps"].push_back({{"after", step.after}, {"arrived", step.arrived}});
  }
  return half;
}

}  // namespace

void run_together(std::span<const std::unique_ptr<dist::Collective>> of_ranks) {
  for (const auto& collective : of_ranks) collective->start(0);
  for (bool done = false; !done;) {
    done = true;
    for (const auto& collective : of_ranks) done = collective->advance() && done;
  }
}

nlohmann::json ring_trace() {
  dist::ThreadJob job(kRingRanks);
  std::vector<std::unique_ptr<Traced>> ranks;
  std::vector<std::unique_ptr<dist::Communicator>> comms;
  std::vector<Tensor> buffers;
  std::vector<std::unique_ptr<dist::Collective>> scatters, gathers;
  Pieces pieces{};
  for (int r = 0; r < kRingRanks; ++r) {
    ranks.push_back(std::make_unique<Traced>(job.transport(r)));
    comms.push_back(std::make_unique<dist::Communicator>(
        *ranks.back(), dist::CommunicatorOptions{.algorithm = dist::Algorithm::ring}));
    buffers.push_back(Tensor::from(std::vector<std::int32_t>(kRingRanks, 1 << r), {kRingRanks}));
    pieces[static_cast<std::size_t>(r)].fill(1 << r);
    scatters.push_back(comms.back()->reduce_scatter(buffers.back()));
    gathers.push_back(comms.back()->all_gather(buffers.back()));
  }
  run_together(scatters);
  const nlohmann::json scatter = replay(pieces, ranks, buffers, true);
  for (std::size_t r = 0; r < kRingRanks; ++r) check(pieces[r][r] == kAll, "a rank must own its piece");
  for (const auto& rank : ranks) rank->messages.clear();
  run_together(gathers);
  const nlohmann::json gather = replay(pieces, ranks, buffers, false);
  for (std::size_t r = 0; r < kRingRanks; ++r) {
    for (std::size_t p = 0; p < kRingRanks; ++p)
      check(pieces[r][p] == kAll && buffers[r].data<std::int32_t>()[p] == kAll,
            "every rank must have the sum");
  }

  return {{"scatter", scatter}, {"gather", gather}};
}

}  // namespace athanor::examples
