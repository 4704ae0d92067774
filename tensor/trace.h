#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// What ran when, on which thread: a ring of fixed size, so that a trace of hours holds the last of them and
// costs no more memory than one of seconds. Off, a TraceScope costs one relaxed load.

namespace athanor {

struct TraceEvent {
  const char* name;
  std::int64_t begin_ns, end_ns;  ///< of the steady clock
  std::int32_t thread;            ///< numbered from 1 in order of first use
};

/// Starts recording into an empty ring of the last `capacity` events. Throws ArgumentError where that is 0.
void start_trace(std::size_t capacity = std::size_t{1} << 16);
/// Stops recording; the events stay until the next start.
void stop_trace();

/// The events in the ring, in the order they ended. May be called while threads record.
std::vector<TraceEvent> trace_events();
/// Events that newer ones have pushed out of the ring.
std::int64_t trace_overwritten();
/// Writes the events as Chrome trace JSON, which chrome://tracing and Perfetto open. Throws IoError.
void write_trace(const std::string& path);

namespace detail {

inline std::atomic<bool> tracing{false};
std::int64_t trace_now();
void trace_push(const char* name, std::int64_t begin_ns);

}  // namespace detail

/// Records the time from here to the end of the scope. `name` must outlive the trace: a string literal.
class TraceScope {
 public:
  explicit TraceScope(const char* name)
      : name_(detail::tracing.load(std::memory_order_relaxed) ? name : nullptr),
        begin_ns_(name_ ? detail::trace_now() : 0) {}
  ~TraceScope() {
    if (name_) detail::trace_push(name_, begin_ns_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const char* name_;
  std::int64_t begin_ns_;
};

}  // namespace athanor
