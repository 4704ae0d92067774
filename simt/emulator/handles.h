#pragma once

#include <cstdint>

#include "simt/emulator/plain_memory.h"

struct CUstream_st;
struct CUevent_st;

namespace simt {

using Stream = ::CUstream_st;
using Event = ::CUevent_st;

/// Streams and events. Those that were destroyed stay valid memory, so that using one can be told.
class Handles {
 public:
  std::uint64_t new_id() { return next_id_++; }
  Stream* make_stream(int device, unsigned flags);
  /// The handle is dead from now on; what is queued still runs.
  void drop_stream(Stream& stream);
  /// Forgets a stream that is dead and has no work left.
  void retire_if_over(Stream& stream);
  Event* make_event(int device, unsigned flags);
  void drop_event(Event& event);

  /// Alive, or with work left; those of graphs too.
  const Vector<Stream*>& streams() const { return streams_; }

 private:
  Vector<Stream*> streams_;
  Deque<Stream*> dead_streams_;  // the oldest is made anew when there are enough
  Deque<Event*> dead_events_;
  std::uint64_t next_id_ = 1;
  std::uint32_t slots_ = 0;
};

}  // namespace simt
