#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <nlohmann/json.hpp>

#include "dist/collectives/communicator.h"
#include "dist/transports/transport.h"

namespace athanor::examples {

/// Records one rank's messages, and counts what it sends and receives.
class Traced final : public dist::Transport {
 public:
  struct Message {
    int to = 0;
    dist::Tag tag = 0;
    const std::byte* from = nullptr;  ///< its address
    std::vector<std::byte> bytes;     ///< as sent
  };

  explicit Traced(dist::Transport& below) : Transport(below.rank(), below.world_size()), below_(below) {}

  dist::Request isend(int to, dist::Tag tag, std::span<const std::byte> bytes) override {
    sent_bytes += static_cast<std::int64_t>(bytes.size());
    if (keeps) messages.push_back({to, tag, bytes.data(), {bytes.begin(), bytes.end()}});
    return below_.isend(to, tag, bytes);
  }
  dist::Request irecv(int from, dist::Tag tag, std::span<std::byte> bytes) override {
    received_bytes += static_cast<std::int64_t>(bytes.size());
    return below_.irecv(from, tag, bytes);
  }
  bool test(dist::Request& request) override { return below_.test(request); }
  void cancel(dist::Request& request) noexcept override { below_.cancel(request); }

  bool keeps = true;  ///< messages too
  std::vector<Message> messages;
  std::int64_t sent_bytes = 0, received_bytes = 0;

 private:
  dist::Transport& below_;
};

/// Starts the collectives of all ranks of a job and advances them in turn, all from this thread, until all
/// are done.
void run_together(std::span<const std::unique_ptr<dist::Collective>> of_ranks);

/// Data for the figures of the chapters on several ranks, recorded from the code.
nlohmann::json ring_trace();
nlohmann::json bytes_trace();
nlohmann::json layout_trace();
nlohmann::json overlap_trace();

}  // namespace athanor::examples
