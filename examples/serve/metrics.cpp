#include "examples/serve/metrics.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include <fmt/format.h>
#include <unistd.h>

namespace athanor::serve {
namespace {

template <class Value>
void line(std::string& out, const char* name, const char* kind, const char* help, Value value) {
  fmt::format_to(std::back_inserter(out), "# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", name, help, kind,
                 value);
}

/// A line for each model.
template <class Value>
void lines(std::string& out, const char* name, const char* kind, const char* help,
           const std::map<std::string, ModelCounts>& models, Value value) {
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, kind);
  for (const auto& [model, counts] : models)
    fmt::format_to(to, "{}{{model=\"{}\"}} {}\n", name, model, value(counts));
}

std::size_t place_of(int code) {
  const auto at = std::find(Metrics::kCodes.begin(), Metrics::kCodes.end() - 1, code);
  return static_cast<std::size_t>(at - Metrics::kCodes.begin());
}

}  // namespace

Histogram::Histogram(std::initializer_list<double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}

void Histogram::add(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  counts_[static_cast<std::size_t>(at)].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

std::uint64_t Histogram::count() const {
  std::uint64_t all = 0;
  for (const auto& one : counts_) all += one.load(std::memory_order_relaxed);
  return all;
}

void Histogram::write(std::string& out, const char* name, const char* help) const {
  const auto to = std::back_inserter(out);
  fmt::format_to(to, "# HELP {0} {1}\n# TYPE {0} histogram\n", name, help);
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i].load(std::memory_order_relaxed);
    fmt::format_to(to, "{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], below);
  }
  below += counts_.back().load(std::memory_order_relaxed);
  fmt::format_to(to, "{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, below, sum_.load());
}

void Metrics::count_request(int code) {
  requests_[place_of(code)].fetch_add(1, std::memory_order_relaxed);
}

std::uint64_t Metrics::requests(int code) const {
  return requests_[place_of(code)].load(std::memory_order_relaxed);
}

ModelCounts& Metrics::of_model(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return models_[name];
}

std::string Metrics::text() const {
  std::string out =
      "# HELP athanor_requests_total Requests by status code.\n# TYPE athanor_requests_total counter\n";
  for (std::size_t i = 0; i < kCodes.size(); ++i) {
    fmt::format_to(std::back_inserter(out), "athanor_requests_total{{code=\"{}\"}} {}\n",
                   kCodes[i] ? fmt::to_string(kCodes[i]) : "other", requests_[i].load());
  }
  line(out, "athanor_images_total", "counter", "Images that were classified.", images.load());
  line(out, "athanor_broken_images_total", "counter", "Images that could not be read.", broken_images.load());
  line(out, "athanor_reloads_total", "counter", "Models loaded since the start.", reloads.load());
  line(out, "athanor_failed_reloads_total", "counter", "Models that could not be loaded since the start.",
       failed_reloads.load());
  line(out, "athanor_connections", "gauge", "Open connections.", connections.load());
  line(out, "athanor_active_requests", "gauge", "Requests started and not yet answered.",
       active_requests.load());
  line(out, "athanor_images_inside", "gauge", "Images that are being decoded, waiting or being computed.",
       images_inside.load());
  line(out, "athanor_body_bytes", "gauge", "Bytes of requests held in memory.", body_bytes.load());
  line(out, "athanor_model_classes", "gauge", "Classes of the current model.", model_classes.load());
  line(out, "athanor_model_generation", "gauge", "1 for the first model, 2 after a reload, and so on.",
       model_generation.load());
  {
    const std::lock_guard lock(mutex_);
    const auto add = [&](const char* name, const char* kind, const char* help, auto value) {
      lines(out, name, kind, help, models_, value);
    };
    add("athanor_model_images_total", "counter", "Images that a model has classified.",
        [](const ModelCounts& of) { return of.images.load(); });
    add("athanor_model_batches_total", "counter", "Batches that a model has computed.",
        [](const ModelCounts& of) { return of.batches.load(); });
    add("athanor_model_compute_seconds_total", "counter", "Time for a model's batches.",
        [](const ModelCounts& of) { return of.compute_seconds.load(); });
    add("athanor_model_loads_total", "counter", "Times that a model was loaded.",
        [](const ModelCounts& of) { return of.loads.load(); });
    add("athanor_model_failed_loads_total", "counter", "Files of a model that could not be used.",
        [](const ModelCounts& of) { return of.failed_loads.load(); });
    add("athanor_model_version", "gauge", "The newest version that answers; 0: none.",
        [](const ModelCounts& of) { return of.version.load(); });
  }
  line(out, "process_resident_memory_bytes", "gauge", "Resident memory size in bytes.", resident_bytes());
  request_seconds.write(out, "athanor_request_seconds", "From a request's headers to its answer.");
  decode_seconds.write(out, "athanor_decode_seconds", "To decode and scale an image.");
  wait_seconds.write(out, "athanor_wait_seconds", "From the end of decoding to the start of the batch.");
  model_seconds.write(out, "athanor_model_seconds", "To compute a batch.");
  batch_images.write(out, "athanor_batch_images", "Images in a batch.");
  return out;
}

std::int64_t resident_bytes() {
  long pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return std::int64_t{pages} * ::sysconf(_SC_PAGESIZE);
}

}  // namespace athanor::serve
