#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "dist/transports/transport.h"
#include "dist/watch/flight_record.h"

namespace athanor::dist {

/// How a collective can fail.
enum class Failure : std::uint8_t {
  deadline,  ///< nothing came for too long
  lost,      ///< the network knows that a rank is gone
  error,     ///< anything else
};

/// What all share who communicate over one transport, whatever Communicator they use: the numbers of their
/// collectives, the record of them, whose turn it is, and the first failure. For their one thread.
class Session {
 public:
  explicit Session(Transport& transport)
      : transport_(transport),
        flight_(std::make_shared<FlightRecord>(transport.rank(), transport.world_size())) {}

  /// Tag of the next collective: the same on all ranks, which start the same ones in the same order.
  Tag next_tag() { return static_cast<Tag>(next_seq_++ % kTags); }
  /// The same for one that is put on record, under its number.
  Tag begin(const Call& call, std::int64_t launch_us = 0) {
    flight_->begin(next_seq_, call, launch_us);
    return next_tag();
  }
  FlightRecord& flight() { return *flight_; }
  std::shared_ptr<const FlightRecord> shared_flight() const { return flight_; }

  /// Throws where `who` must not start a collective: PeerLostError after give_up(), ArgumentError while
  /// another than `owner` holds it.
  void check_free(const char* who, const void* owner = nullptr) const;
  /// From check_free() on, nobody but `owner` starts a collective until release(): it has some under way.
  void hold(const char* who, const void* owner);
  void release(const void* owner);

  /// Whether buckets may be under way while somebody runs collectives on a duplicate of the transport; else
  /// they wait until they are waited for (Transport::duplicates_are_concurrent).
  bool concurrent() const { return concurrent_.load(std::memory_order_relaxed); }
  void set_concurrent(bool may) { concurrent_ = may; }

  /// A collective has failed, and ranks no longer agree on what comes next: the transport abandons what is
  /// under way. The first reason stays.
  void give_up(const std::string& why);
  /// Empty where none has.
  const std::string& failure() const { return failure_; }

  /// The record of another network, on which passes wait (dist/pass_network.h); null: there is none. The
  /// watchdog's thread reads on in it while the network goes.
  void set_passes(std::shared_ptr<const FlightRecord> record) {
    const std::scoped_lock lock(passes_mutex_);
    passes_ = std::move(record);
  }
  std::shared_ptr<const FlightRecord> passes() const {
    const std::scoped_lock lock(passes_mutex_);
    return passes_;
  }

  /// Called where a collective fails, by the thread that pushes it, with the error; before it is thrown.
  std::function<void(Failure, const std::exception&)> on_failure;

 private:
  Transport& transport_;
  std::int64_t next_seq_ = 0;
  const void* owner_ = nullptr;
  std::atomic<bool> concurrent_{true};
  std::string failure_;
  const std::shared_ptr<FlightRecord> flight_;
  mutable std::mutex passes_mutex_;
  std::shared_ptr<const FlightRecord> passes_;
};

}  // namespace athanor::dist
