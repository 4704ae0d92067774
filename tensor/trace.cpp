#include "tensor/trace.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>

#include <nlohmann/json.hpp>

#include "tensor/atomic_file.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

/// Writers take a ticket and write the slot it points at, without locks. A slot's `ticket` is 0 while it is
/// being written, so that a reader (or a writer a whole ring behind) can tell.
struct Ring {
  struct Slot {
    std::atomic<std::uint64_t> ticket{0};
    std::atomic<const char*> name{nullptr};
    std::atomic<std::int64_t> begin_ns{0}, end_ns{0};
    std::atomic<std::int32_t> thread{0};
  };

  explicit Ring(std::size_t size) : slots(size) {}

  std::vector<Slot> slots;
  std::atomic<std::uint64_t> next{0};
};

// A thread may still write into the ring of an earlier trace, so rings live as long as the process. One that
// fits is used again.
struct Rings {
  std::mutex mutex;
  std::vector<std::unique_ptr<Ring>> all;
  std::atomic<Ring*> current{nullptr};
};

Rings& rings() {
  static Rings* const instance = new Rings;  // never destroyed: threads may outlive main
  return *instance;
}

std::int32_t thread_number() {
  static std::atomic<std::int32_t> threads{0};
  thread_local const std::int32_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number;
}

}  // namespace

namespace detail {

std::int64_t trace_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void trace_push(const char* name, std::int64_t begin_ns) {
  Ring* ring = rings().current.load(std::memory_order_acquire);
  if (!ring) return;
  const std::uint64_t ticket = ring->next.fetch_add(1, std::memory_order_relaxed);
  Ring::Slot& slot = ring->slots[ticket % ring->slots.size()];
  slot.ticket.store(0, std::memory_order_release);
  slot.name.store(name, std::memory_order_release);
  slot.begin_ns.store(begin_ns, std::memory_order_release);
  slot.end_ns.store(trace_now(), std::memory_order_release);
  slot.thread.store(thread_number(), std::memory_order_release);
  slot.ticket.store(ticket + 1, std::memory_order_release);
}

}  // namespace detail

void start_trace(std::size_t capacity) {
  ATH_CHECK(capacity > 0, "trace: capacity must be > 0, but is {}", capacity);
  Rings& registry = rings();
  const std::lock_guard lock(registry.mutex);
  const auto fits = [&](const std::unique_ptr<Ring>& ring) { return ring->slots.size() == capacity; };
  auto found = std::find_if(registry.all.begin(), registry.all.end(), fits);
  if (found == registry.all.end()) {
    registry.all.push_back(std::make_unique<Ring>(capacity));
    found = registry.all.end() - 1;
  }
  for (Ring::Slot& slot : (*found)->slots) slot.ticket.store(0, std::memory_order_relaxed);
  (*found)->next.store(0, std::memory_order_relaxed);
  registry.current.store(found->get(), std::memory_order_release);
  detail::tracing.store(true, std::memory_order_release);
}

void stop_trace() {
  detail::tracing.store(false, std::memory_order_release);
}

std::vector<TraceEvent> trace_events() {
  const Ring* ring = rings().current.load(std::memory_order_acquire);
  if (!ring) return {};
  std::vector<std::pair<std::uint64_t, TraceEvent>> found;
  for (const Ring::Slot& slot : ring->slots) {
    const std::uint64_t ticket = slot.ticket.load(std::memory_order_acquire);
    const TraceEvent event{
        slot.name.load(std::memory_order_acquire), slot.begin_ns.load(std::memory_order_acquire),
        slot.end_ns.load(std::memory_order_acquire), slot.thread.load(std::memory_order_acquire)};
    if (ticket != 0 && slot.ticket.load(std::memory_order_acquire) == ticket)
      found.emplace_back(ticket, event);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TraceEvent> events;
  events.reserve(found.size());
  for (const auto& [ticket, event] : found) events.push_back(event);
  return events;
}

std::int64_t trace_overwritten() {
  const Ring* ring = rings().current.load(std::memory_order_acquire);
  if (!ring) return 0;
  const std::uint64_t pushed = ring->next.load(std::memory_order_relaxed);
  return pushed > ring->slots.size() ? static_cast<std::int64_t>(pushed - ring->slots.size()) : 0;
}

void write_trace(const std::string& path) {
  const std::vector<TraceEvent> events = trace_events();
  std::int64_t start = events.empty() ? 0 : events[0].begin_ns;
  for (const TraceEvent& event : events) start = std::min(start, event.begin_ns);

  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const char* separator = "\n";
  for (const TraceEvent& event : events) {
    const std::string name = Json(event.name).dump(-1, ' ', false, Json::error_handler_t::replace);
    json += fmt::format(R"({}{{"name":{},"ph":"X","ts":{:.3f},"dur":{:.3f},"pid":1,"tid":{}}})", separator,
                        name, static_cast<double>(event.begin_ns - start) / 1000,
                        static_cast<double>(event.end_ns - event.begin_ns) / 1000, event.thread);
    separator = ",\n";
  }
  json += "\n]}\n";

  AtomicFile file(path);
  file.write(std::as_bytes(std::span(json)));
  file.commit();
}

}  // namespace athanor
