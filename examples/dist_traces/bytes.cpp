#include <memory>

#include "dist/transports/thread_transport.h"
#include "examples/dist_traces/traces.h"

// Counts what a step sends: with one rank that distributes and collects (DataParallel), and among equal ranks
// (DDP). The same messages as in training, with fewer elements.

namespace athanor::examples {
namespace {

using dist::Request;

/// Each rank's outgoing and incoming bytes, in units of the weights and of one rank's images.
struct Traffic {
  std::vector<double> weights, images;
};

constexpr std::size_t kBytes = 64 * 63 * sizeof(float);  // of the small model, and of a rank's images

struct Job {
  explicit Job(int world) : threads(world) {
    for (int r = 0; r < world; ++r) {
      ranks.push_back(std::make_unique<Traced>(threads.transport(r)));
      ranks.back()->keeps = false;
    }
  }
  int world() const { return static_cast<int>(ranks.size()); }

  /// One message, from start to completion.
  void move(int from, int to, std::span<std::byte> out, std::span<std::byte> in) {
    Request sent = at(from).isend(to, 0, out), received = at(to).irecv(from, 0, in);
    while (!at(from).test(sent) || !at(to).test(received)) continue;
  }
  std::vector<double> counted() const {
    std::vector<double> units;
    for (const auto& rank : ranks)
      units.push_back(static_cast<double>(rank->sent_bytes + rank->received_bytes) /
                      static_cast<double>(kBytes));
    return units;
  }
  Traced& at(int rank) { return *ranks[static_cast<std::size_t>(rank)]; }

  dist::ThreadJob threads;
  std::vector<std::unique_ptr<Traced>> ranks;
};

/// Sends weights to each rank in turn and collects their gradients; also sends their images.
Traffic from_one_rank(int world) {
  std::vector<std::byte> out(kBytes), in(kBytes);
  Job weights(world), images(world);
  for (int r = 1; r < world; ++r) {
    weights.move(0, r, out, in);
    weights.move(r, 0, out, in);
    images.move(0, r, out, in);
  }
  return {weights.counted(), images.counted()};
}

/// The same along a chain: weights are passed from rank to rank, and sums of gradients back.
Traffic along_a_chain(int world) {
  Job weights(world);
  std::vector<std::unique_ptr<dist::Communicator>> comms;
  std::vector<std::unique_ptr<dist::Collective>> broadcasts;
  for (const auto& rank : weights.ranks) {
    comms.push_back(std::make_unique<dist::Communicator>(*rank));
    broadcasts.push_back(
        comms.back()->broadcast(Tensor::zeros({kBytes / static_cast<std::int64_t>(sizeof(float))}), 0));
  }
  run_together(broadcasts);
  std::vector<std::byte> out(kBytes), in(kBytes);
  for (int r = world - 1; r > 0; --r) weights.move(r, r - 1, out, in);
  return {weights.counted(), from_one_rank(world).images};
}

/// An all-reduce of the gradients. Each rank reads its own images.
Traffic among_equals(int world) {
  Job job(world);
  std::vector<std::unique_ptr<dist::Communicator>> comms;
  std::vector<std::unique_ptr<dist::Collective>> reduces;
  for (const auto& rank : job.ranks) {
    comms.push_back(std::make_unique<dist::Communicator>(
        *rank, dist::CommunicatorOptions{.algorithm = dist::Algorithm::ring}));
    reduces.push_back(
        comms.back()->all_reduce(Tensor::zeros({kBytes / static_cast<std::int64_t>(sizeof(float))})));
  }
  run_together(reduces);
  return {job.counted(), std::vector<double>(job.ranks.size())};
}

nlohmann::json counted(const Traffic& traffic) {
  return {{"weights", traffic.weights}, {"images", traffic.images}};
}

}  // namespace

nlohmann::json bytes_trace() {
  nlohmann::json rows = nlohmann::json::array();
  for (int world = 2; world <= 64; world *= 2) {
    rows.push_back({{"ranks", world},
                    {"one", counted(from_one_rank(world))},
                    {"chain", counted(along_a_chain(world))},
                    {"equals", counted(among_equals(world))}});
  }
  return rows;
}

}  // namespace athanor::examples
