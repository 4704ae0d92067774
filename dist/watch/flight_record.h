#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include "tensor/dtype.h"

namespace athanor::dist {

/// What a collective is called in records and in errors.
struct Call {
  const char* name = "";  ///< "ring all_reduce": a literal, which is kept
  DType dtype = DType::u8;
  std::int64_t count = 0;    ///< elements of its buffer; 0: it has none
  std::int64_t bucket = -1;  ///< of gradients; -1: none

  std::int64_t bytes() const { return count * static_cast<std::int64_t>(size_of(dtype)); }
};

/// What a rank has done together with others, for one who asks later why it stood still: the last 4,096
/// collectives, each with its number, what it was, when it was launched, started, got on and was done, how
/// many bytes have arrived or been taken, and whose message was missing.
///
/// Every Transport keeps one. The thread that communicates writes: some stores into memory that is there, no
/// lock, no allocation. Any thread may read at any time, and so may a signal handler; what is overwritten
/// meanwhile is left out.
class FlightRecord {
 public:
  static constexpr int kEntries = 4096;

  struct Entry {
    std::int64_t seq = -1;  ///< 0 is the first of the transport; -1: none
    Call call;
    /// Microseconds since 1970 by this machine's clock, 0: not yet. `last`: when a message was complete.
    std::int64_t launch_us = 0, start_us = 0, last_us = 0, end_us = 0;
    std::int64_t bytes = 0;  ///< of messages complete, both ways; native: of the buffer, when it is done
    int waits_for = -1;      ///< the rank whose message is missing

    bool under_way() const { return seq >= 0 && end_us == 0; }
  };

  FlightRecord(int rank, int world_size);
  ~FlightRecord();
  FlightRecord(const FlightRecord&) = delete;
  FlightRecord& operator=(const FlightRecord&) = delete;

  // For the thread that communicates.

  /// The collective `seq` starts, of which all before it are done or given up. `launch_us`: since when it
  /// might have, 0: now.
  void begin(std::int64_t seq, const Call& call, std::int64_t launch_us = 0);
  /// A message of the current one is complete.
  void moved(std::int64_t bytes);
  void waits_for(int rank);
  void end();

  // For everybody.

  int rank() const { return rank_; }
  std::string_view host() const { return host_.data(); }
  int world_size() const { return world_size_; }
  /// Number of collectives begun.
  std::int64_t size() const;
  /// The collective `seq`; seq -1 where it was overwritten or has not begun.
  Entry at(std::int64_t seq) const;
  Entry last() const { return at(size() - 1); }

  /// Writes JSON lines: first one of the rank, why it is written (`reason`, a word, and `error`, any text)
  /// and when; then the entries, newest first, so that a file that was cut has what matters; then one that
  /// says that it is whole. Until it is, it is called `path` and kUnfinished, and a record that is there
  /// stays. Only this user may read it, and no link is followed. Of `error`, the first 4,096 bytes. Calls
  /// nothing that may not be called in a signal handler. False where the file cannot be written.
  bool write(const char* path, std::string_view reason, std::string_view error = {}) const noexcept;
  static constexpr char kUnfinished[] = ".part";

  /// Now, as in the entries: the clock that the system had when the process began, and steady since.
  static std::int64_t now_us() noexcept;

 private:
  struct Slot;
  Slot* current() const;

  int rank_, world_size_;
  std::int64_t began_us_;
  std::array<char, 64> host_{};
  std::unique_ptr<Slot[], void (*)(void*)> slots_;
  std::int64_t begun_ = 0;  // atomically
};

/// Opens a new file of this name, which only this user may read, in place of what is there; a link is
/// replaced, not followed. -1 and errno where it cannot. May be called in a signal handler.
int create_private(const char* path) noexcept;

}  // namespace athanor::dist
