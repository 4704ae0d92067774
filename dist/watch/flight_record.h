#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tensor/dtype.h"

namespace athanor::dist {

/// The description of a collective in records and errors.
struct Call {
  const char* name = "";  ///< "ring all_reduce": a literal, not copied
  DType dtype = DType::u8;
  std::int64_t count = 0;    ///< elements of its buffer; 0: no buffer
  std::int64_t bucket = -1;  ///< of gradients; -1: none

  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(dtype)); }
};

/// A rank's collectives, to explain later why it stalled: the last 4,096, each with its number, its
/// description, times of launch, start, progress and completion, bytes transferred, and the rank whose
/// message was missing.
///
/// Every Transport has one. The communicating thread writes it with a few stores, without locks or
/// allocations. Any thread and any signal handler may read at any time; entries overwritten meanwhile are
/// omitted.
class FlightRecord {
 public:
  static constexpr int kEntries = 4096;

  struct Entry {
    std::int64_t seq = -1;  ///< 0 is the first of the transport; -1: none
    Call call;
    /// Microseconds since 1970 on this machine's clock, 0: not yet. `last`: the last completed message.
    std::int64_t launch_us = 0, start_us = 0, last_us = 0, end_us = 0;
    std::int64_t bytes = 0;  ///< of completed messages, both ways; native: of the buffer, once done
    int waits_for = -1;      ///< the rank whose message is missing

    bool under_way() const { return seq >= 0 && end_us == 0; }
  };

  FlightRecord(int rank, int world_size);
  ~FlightRecord();
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;

  // For the communicating thread.

  /// The collective `seq` starts; all before the last one are done or given up. `launch_us`: the time from
  /// which it could have started, 0: now.
  void begin(std::int64_t seq, const Call& call, std::int64_t launch_us = 0);
  // Of the newest collective, or of `seq`: the one before may still be in a device's queue.

  /// A message of the newest is complete.
  void moved(std::int64_t bytes);
  void waits_for(int rank, std::int64_t seq = -1);
  void end(std::int64_t seq = -1);

  // For any thread.

  int rank() const { return rank_; }
  std::string_view host() const { return host_.data(); }
  int world_size() const { return world_size_; }
  /// Number of collectives begun.
  std::int64_t size() const;
  /// The collective `seq`; its seq is -1 if it was overwritten or has not begun.
  Entry at(std::int64_t seq) const;
  Entry last() const { return at(size() - 1); }
  /// Where this rank stands: the last one, or the one before if that is not done either.
  Entry oldest_open() const {
    const Entry before = at(size() - 2);
    return before.under_way() && last().under_way() ? before : last();
  }

  /// Writes JSON lines: a header with the rank, the reason (`reason`, a word, and `error`, any text) and the
  /// time; then the entries, newest first, so that a truncated file has the important ones; then an end
  /// marker. Writes to `path` plus kUnfinished, then renames, so an existing record is kept until then. The
  /// file is readable only by this user, and links are not followed. Keeps the first 4,096 bytes of `error`.
  /// Async-signal-safe. False if the file cannot be written.
  bool write(const char* path, std::string_view reason, std::string_view error = {}) const noexcept;
  static constexpr char kUnfinished[] = ".part";

  /// The current time as in the entries: the system clock at process start, advanced by a steady clock.
  static std::int64_t now_us() noexcept;

 private:
  struct Slot;
  Slot* current(std::int64_t seq = -1) const;

  int rank_, world_size_;
  std::int64_t began_us_;
  std::array<char, 64> host_{};
  std::unique_ptr<Slot[], void (*)(void*)> slots_;
  std::int64_t begun_ = 0;  // atomically
};

/// Where a rank stands, now: "rank 0 waits for rank 3 in ring all_reduce #688, bucket 4, for 10 s".
std::string describe_wait(const FlightRecord& record);

/// Creates a new file, readable only by this user, replacing any file or link of that name without following
/// it. Returns -1 and sets errno on failure. Async-signal-safe.
int create_private(const char* path) noexcept;

}  // namespace athanor::dist
