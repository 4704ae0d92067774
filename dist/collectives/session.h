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

/// The causes of a collective's failure.
enum class Failure : std::uint8_t {
  deadline,  ///< no progress for too long
  lost,      ///< the network knows that a rank is lost
  error,     ///< anything else
};

/// State shared by all users of one transport, whatever their Communicator: the numbers of their collectives,
/// the flight record, the current owner, and the first failure. For one thread.
class Session {
 public:
  explicit Session(Transport& transport)
      : transport_(transport),
        flight_(std::make_shared<FlightRecord>(transport.rank(), transport.world_size())) {}

  /// The tag of the next collective: equal on all ranks, which start the same collectives in order.
  Tag next_tag() { return static_cast<Tag>(next_seq_++ % kTags); }
  /// The same for a collective on the flight record, under its number.
  Tag begin(const Call& call, std::int64_t launch_us = 0) {
    flight_->begin(next_seq_, call, launch_us);
    return next_tag();
  }
  FlightRecord& flight() { return *flight_; }
  std::shared_ptr<const FlightRecord> shared_flight() const { return flight_; }

  /// Throws if `who` must not start a collective: PeerLostError after give_up(), ArgumentError while another
  /// owner than `owner` holds the transport.
  void check_free(const char* who, const void* owner = nullptr) const;
  /// check_free(), then reserves the transport for the collectives of `owner` until release().
  void hold(const char* who, const void* owner);
  void release(const void* owner);

  /// Whether buckets may be in flight while collectives run on a duplicate of the transport; otherwise
  /// buckets start only when they are waited for (Transport::duplicates_are_concurrent).
  bool concurrent() const { return concurrent_.load(std::memory_order_relaxed); }
  void set_concurrent(bool may) { concurrent_ = may; }

  /// Called when a collective has failed and ranks no longer agree on the next one: the transport abandons
  /// all messages. The first reason is kept.
  void give_up(const std::string& why);
  /// Empty if no collective has failed.
  const std::string& failure() const { return failure_; }

  /// The record of another network on which passes wait (dist/pass_network.h), or null. The watchdog's thread
  /// may keep reading it while that network is destroyed.
  void set_passes(std::shared_ptr<const FlightRecord> record) {
    const std::scoped_lock lock(passes_mutex_);
    passes_ = std::move(record);
  }
  std::shared_ptr<const FlightRecord> passes() const {
    const std::scoped_lock lock(passes_mutex_);
    return passes_;
  }

  /// Called when a collective fails, on the advancing thread, before the error is thrown.
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
