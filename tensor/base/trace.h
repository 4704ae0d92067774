#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Records what ran when, on which thread, in a ring of fixed size: a trace of hours keeps its last part and
// uses no more memory than one of seconds. When off, a TraceScope costs one relaxed load.

namespace athanor {

struct TraceEvent {
  const char* name;
  std::int64_t begin_ns, end_ns;  ///< on the steady clock
  std::int32_t thread;            ///< numbered from 1 in order of first use
  const char* category = "";      ///< "forward", "read", ...
  /// The name of its layer, for example; null: none.
  const char* of = nullptr;
  /// The index of its batch, to link the reading of a batch with its use; -1: none.
  std::int64_t batch = -1;
};

/// Starts recording into an empty ring of the last `capacity` events. Throws ArgumentError on capacity 0.
void start_trace(std::size_t capacity = std::size_t{1} << 16);
/// Stops recording; the events remain until the next start.
void stop_trace();

/// The events in the ring, in the order they ended. May be called while threads record.
std::vector<TraceEvent> trace_events();
/// Names this thread in traces; the default is its number.
void name_thread(const std::string& name);
/// The events as a Chrome trace JSON list: spans, with process `rank` and its named threads, and an arrow for
/// each batch from its last "read" to the first event of another category.
std::string trace_json(int rank = 0);
/// Writes the lists of one or more ranks to a file that chrome://tracing and Perfetto open. Throws IoError.
void write_trace(const std::string& path, const std::vector<std::string>& lists);
inline void write_trace(const std::string& path) {
  write_trace(path, {trace_json()});
}
/// An interned copy of a name that lives as long as the process: a valid name for events.
const char* interned_name(std::string_view name);

namespace detail {

inline std::atomic<bool> tracing{false};
std::int64_t trace_now();
void trace_push(const char* name, std::int64_t begin_ns, std::int64_t end_ns, const char* category = "",
                const char* of = nullptr, std::int64_t batch = -1);

}  // namespace detail

/// Records the time from here to the end of the scope. `name` and `category` must outlive the trace: string
/// literals, or interned_name().
class TraceScope {
 public:
  explicit TraceScope(const char* name, const char* category = "", std::int64_t batch = -1)
      : name_(detail::tracing.load(std::memory_order_relaxed) ? name : nullptr),
        category_(category),
        batch_(batch),
        begin_ns_(name_ ? detail::trace_now() : 0) {}
  ~TraceScope() {
    if (name_) detail::trace_push(name_, begin_ns_, detail::trace_now(), category_, nullptr, batch_);
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  const char* name_;
  const char* category_;
  std::int64_t batch_;
  std::int64_t begin_ns_;
};

}  // namespace athanor
