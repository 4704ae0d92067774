#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace athanor::serve {

/// A histogram: counts of values up to each bound, their number and sum. Any thread may add and read at any
/// time.
class Histogram {
 public:
  /// Bounds in ascending order.
  explicit Histogram(std::initializer_list<double> bounds);

  void add(double value);
  std::uint64_t count() const;
  double sum() const { return sum_; }
  /// Appends it in the text format of Prometheus.
  void write(std::string& out, const char* name, const char* help) const;

 private:
  std::vector<double> bounds_;
  std::vector<std::atomic<std::uint64_t>> counts_;  // one more than bounds, for larger values
  std::atomic<double> sum_ = 0;
};

/// Of the models of one name.
struct ModelCounts {
  std::atomic<std::uint64_t> images = 0, batches = 0, loads = 0, failed_loads = 0;
  std::atomic<double> compute_seconds = 0;
  std::atomic<std::int64_t> version = 0;  ///< the newest that answers; 0: none
};

/// The service's counters. Names and meanings: docs/reference/serving.md.
struct Metrics {
  /// Status codes of the server; any other is counted as the last.
  static constexpr std::array<int, 12> kCodes{200, 400, 401, 403, 404, 405, 408, 413, 499, 503, 500, 0};

  void count_request(int code);
  std::uint64_t requests(int code) const;
  /// Those of a name, which stay where they are.
  ModelCounts& of_model(const std::string& name);
  /// All metrics in the text format of Prometheus, version 0.0.4.
  std::string text() const;

  std::atomic<std::uint64_t> images = 0, broken_images = 0;
  std::atomic<std::uint64_t> reloads = 0, failed_reloads = 0;
  std::atomic<std::int64_t> connections = 0, active_requests = 0, images_inside = 0, body_bytes = 0;
  std::atomic<std::int64_t> model_classes = 0, model_generation = 0;
  Histogram request_seconds{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10};
  Histogram decode_seconds{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 1};
  Histogram wait_seconds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};
  Histogram model_seconds{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};
  Histogram batch_images{1, 2, 4, 8, 16, 32, 64, 128, 256};

 private:
  std::array<std::atomic<std::uint64_t>, kCodes.size()> requests_{};
  mutable std::mutex mutex_;  // guards the map, not its values
  std::map<std::string, ModelCounts> models_;
};

/// Resident memory of this process in bytes.
std::int64_t resident_bytes();

}  // namespace athanor::serve
