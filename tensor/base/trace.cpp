#include "tensor/base/trace.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include <nlohmann/json.hpp>

#include "tensor/base/error.h"
#include "tensor/io/atomic_file.h"

namespace athanor {
namespace {

using Json = nlohmann::json;

/// Writers take a ticket and write its slot without locks. A slot's `ticket` is 0 while it is being written,
/// so that a reader (or a writer one ring behind) can detect it.
struct Ring {
  struct Slot {
    std::atomic<std::uint64_t> ticket{0};
    std::atomic<const char*> name{nullptr};
    std::atomic<std::int64_t> begin_ns{0}, end_ns{0};
    std::atomic<std::int32_t> thread{0};
    std::atomic<const char*> category{nullptr}, of{nullptr};
    std::atomic<std::int64_t> batch{-1};
  };

  explicit Ring(std::size_t size) : slots(size) {}

  std::vector<Slot> slots;
  std::atomic<std::uint64_t> next{0};
};

// A thread may still write to the ring of an earlier trace, so rings live as long as the process. A ring of
// the right size is reused.
struct Rings {
  std::mutex mutex;
  std::vector<std::unique_ptr<Ring>> all;
  std::atomic<Ring*> current{nullptr};
  std::map<std::int32_t, std::string> thread_names;  // of those that have one
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

void trace_push(const char* name, std::int64_t begin_ns, std::int64_t end_ns, const char* category,
                const char* of, std::int64_t batch) {
  Ring* ring = rings().current.load(std::memory_order_acquire);
  if (!ring) return;
  const std::uint64_t ticket = ring->next.fetch_add(1, std::memory_order_relaxed);
  Ring::Slot& slot = ring->slots[ticket % ring->slots.size()];
  slot.ticket.store(0, std::memory_order_release);
  slot.name.store(name, std::memory_order_release);
  slot.begin_ns.store(begin_ns, std::memory_order_release);
  slot.end_ns.store(end_ns, std::memory_order_release);
  slot.thread.store(thread_number(), std::memory_order_release);
  slot.category.store(category, std::memory_order_release);
  slot.of.store(of, std::memory_order_release);
  slot.batch.store(batch, std::memory_order_release);
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
        slot.name.load(std::memory_order_acquire),     slot.begin_ns.load(std::memory_order_acquire),
        slot.end_ns.load(std::memory_order_acquire),   slot.thread.load(std::memory_order_acquire),
        slot.category.load(std::memory_order_acquire), slot.of.load(std::memory_order_acquire),
        slot.batch.load(std::memory_order_acquire)};
    if (ticket != 0 && slot.ticket.load(std::memory_order_acquire) == ticket)
      found.emplace_back(ticket, event);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<TraceEvent> events;
  events.reserve(found.size());
  for (const auto& [ticket, event] : found) events.push_back(event);
  return events;
}

const char* interned_name(std::string_view name) {
  static std::mutex mutex;
  static auto* const names = new std::set<std::string, std::less<>>;  // never destroyed, as the rings
  const std::lock_guard lock(mutex);
  const auto found = names->find(name);
  return (found == names->end() ? names->emplace(name).first : found)->c_str();
}

void name_thread(const std::string& name) {
  Rings& registry = rings();
  const std::lock_guard lock(registry.mutex);
  registry.thread_names[thread_number()] = name;
}

namespace {

std::string quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Arrows from the reading of a batch to its use.
std::string arrows_of(const std::vector<TraceEvent>& events, int rank,
                      const std::function<double(std::int64_t)>& us) {
  std::map<std::int64_t, const TraceEvent*> read, used;
  for (const TraceEvent& event : events) {
    if (event.batch < 0) continue;
    if (std::string_view(event.category) == "read") {
      const TraceEvent*& last = read[event.batch];
      if (!last || last->end_ns < event.end_ns) last = &event;
    } else {
      const TraceEvent*& first = used[event.batch];
      if (!first || event.begin_ns < first->begin_ns) first = &event;
    }
  }
  std::string json;
  for (const auto& [batch, from] : read) {
    const auto to = used.find(batch);
    if (to == used.end() || to->second->end_ns < from->end_ns) continue;
    // An arrow ends inside a span, but not before its own beginning.
    const std::int64_t end_ns = std::max(to->second->begin_ns, from->end_ns);
    const auto point = [&, batch = batch](const char* phase, std::int64_t ns, int thread) {
      return fmt::format(
          R"(,{{"name":"batch","cat":"batch","id":{},"ph":"{}","bp":"e","ts":{:.3f},"pid":{},"tid":{}}})"
          "\n",
          fmt::format("\"{}.{}\"", rank, batch), phase, us(ns), rank, thread);
    };
    json += point("s", from->end_ns - 1, from->thread) + point("f", end_ns, to->second->thread);
  }
  return json;
}

}  // namespace

std::string trace_json(int rank) {
  const std::vector<TraceEvent> events = trace_events();
  // Ranks on one machine share a clock, so its times need no conversion.
  const auto us = [](std::int64_t ns) { return static_cast<double>(ns) / 1000; };
  std::string json =
      fmt::format(R"({{"name":"process_name","ph":"M","pid":{0},"args":{{"name":"rank {0}"}}}})", rank);
  {
    Rings& registry = rings();
    const std::lock_guard lock(registry.mutex);
    for (const auto& [thread, name] : registry.thread_names)
      json += fmt::format(
          ",\n"
          R"({{"name":"thread_name","ph":"M","pid":{},"tid":{},"args":{{"name":{}}}}})",
          rank, thread, quoted(name));
  }
  for (const TraceEvent& event : events) {
    std::string more;
    if (event.category[0] != 0) more += fmt::format(R"(,"cat":{})", quoted(event.category));
    if (event.of || event.batch >= 0) {
      more += R"(,"args":{)";
      if (event.of) more += fmt::format(R"("layer":{})", quoted(event.of));
      if (event.batch >= 0) more += fmt::format(R"({}"batch":{})", event.of ? "," : "", event.batch);
      more += "}";
    }
    json += fmt::format(
        ",\n"
        R"({{"name":{},"ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{}{}}})",
        quoted(event.name), us(event.begin_ns), us(event.end_ns - event.begin_ns), rank, event.thread, more);
  }
  return json + "\n" + arrows_of(events, rank, us);
}

void write_trace(const std::string& path, const std::vector<std::string>& lists) {
  std::string json = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (const std::string& list : lists) json += (&list == lists.data() ? "" : ",") + list;
  json += "]}\n";
  write_atomically(path, json);
}

}  // namespace athanor
