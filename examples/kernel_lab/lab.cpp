#include "lab.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>

#if defined(ATHANOR_SIMT)
#include "simt/emulator/counters.h"
#include "simt/emulator/executor.h"
#endif

// main of an exercise.
//   exercise          checks every size: code 0 if all are right, 1 if one is wrong
//   exercise --once   runs only the last size, for a debugger
//   exercise --time   times the large size, on a GPU
//   exercise --count  runs the last size and prints the cost of its memory accesses, line by line; --row: in
//   one row
// A kernel that breaks a rule of CUDA, or any other failure, gives code 3 and a diagnosis.

namespace lab {

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

namespace {

class DeviceArray {
 public:
  explicit DeviceArray(std::size_t length) : bytes_(length * sizeof(float)) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes_), "cudaMalloc");
    data_ = static_cast<float*>(memory);
    check(cudaMemset(data_, 0xff, bytes_), "cudaMemset");  // NaN, until it is written
  }
  explicit DeviceArray(const std::vector<float>& from) : DeviceArray(from.size()) {
    check(cudaMemcpy(data_, from.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  float* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  std::vector<float> values() const {
    std::vector<float> result(bytes_ / sizeof(float));
    check(cudaMemcpy(result.data(), data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return result;
  }

 private:
  float* data_ = nullptr;
  std::size_t bytes_;
};

// A kernel's arrays for one size.
class Problem {
 public:
  Problem(const Task& task, Size size) : size_(size), y_(task.result(size)) {
    std::uint32_t state = 1;
    for (const Length length : task.inputs) {
      std::vector<float>& x = host_.emplace_back(length(size));
      for (float& value : x) {
        state = state * 1664525u + 1013904223u;
        value = static_cast<float>(static_cast<std::int32_t>(state) >> 8) * 0x1p-23f;
      }
      device_.push_back(std::make_unique<DeviceArray>(x));
      x_.push_back(device_.back()->data());
    }
  }

  void run() const { lab::run(size_, x_, y_.data()); }
  Arrays inputs() const { return host_; }
  std::vector<float> result() const { return y_.values(); }
  std::size_t bytes() const {
    std::size_t total = y_.bytes();
    for (const auto& array : device_) total += array->bytes();
    return total;
  }

 private:
  Size size_;
  std::vector<std::vector<float>> host_;
  std::vector<std::unique_ptr<DeviceArray>> device_;
  std::vector<const float*> x_;
  DeviceArray y_;
};

std::string text(const char* format, auto... values) {
  char line[200];
  std::snprintf(line, sizeof line, format, values...);
  return line;
}

// Empty if all is right.
std::string compare(const std::vector<float>& y, const std::vector<double>& expected, double tolerance,
                    double* largest) {
  if (y.size() != expected.size())
    throw std::runtime_error("the task: reference and result differ in length");
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double value = y[i], error = std::fabs(value - expected[i]) / (1 + std::fabs(expected[i]));
    if (std::isnan(value) && !std::isnan(expected[i]))
      return text("y[%zu] must be %.9g, but no number was written there", i, expected[i]);
    if (!(error <= tolerance)) return text("y[%zu] must be %.9g, but is %.9g", i, expected[i], value);
    *largest = std::max(*largest, error);
  }
  return "";
}

// ": what a typical mistake does", where y is the result of one.
std::string mistake(const Task& task, Size size, const Problem& problem) {
  for (const Mistake& mistake : task.mistakes) {
    double ignored = 0;
    if (compare(problem.result(), mistake.result(size, problem.inputs()), task.tolerance, &ignored).empty())
      return ": " + mistake.name;
  }
  return "";
}

int check_all(const Task& task, std::span<const Size> sizes) {
  double largest = 0;
  for (const Size size : sizes) {
    const Problem problem(task, size);
    problem.run();
    check(cudaDeviceSynchronize(), "the kernel");
    const std::string wrong =
        compare(problem.result(), task.reference(size, problem.inputs()), task.tolerance, &largest);
    if (!wrong.empty()) {
      std::printf("wrong at %d x %d: %s%s\n", size.rows, size.cols, wrong.c_str(),
                  mistake(task, size, problem).c_str());
      return 1;
    }
  }
  std::printf("right for %zu size%s, largest error %.2g\n", sizes.size(), sizes.size() == 1 ? "" : "s",
              largest);
  return 0;
}

int time_large(const Task& task) {
  const Problem problem(task, task.large);
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  std::vector<float> ms;
  for (int turn = 0; turn < 25; ++turn) {
    check(cudaEventRecord(begin), "cudaEventRecord");
    problem.run();
    check(cudaEventRecord(end), "cudaEventRecord");
    check(cudaEventSynchronize(end), "the kernel");
    float elapsed = 0;
    check(cudaEventElapsedTime(&elapsed, begin, end), "cudaEventElapsedTime");
    if (turn >= 5) ms.push_back(elapsed);  // the first warm up
  }
  std::sort(ms.begin(), ms.end());
  const double median = ms[ms.size() / 2];
  std::printf("%.4f ms at %d x %d, %.0f GB/s if each array moved once (median of %zu, from %.4f to %.4f)\n",
              median, task.large.rows, task.large.cols, static_cast<double>(problem.bytes()) / median / 1e6,
              ms.size(), ms.front(), ms.back());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return 0;
}

#if defined(ATHANOR_SIMT)
std::string of_fewest(std::uint64_t cost, std::uint64_t fewest) {
  return std::to_string(cost) + (cost == fewest ? "" : " (" + std::to_string(fewest) + ")");
}

// A row of a Markdown table: global memory accesses by warps; sectors read and written; rounds of shared
// memory, each with the minimum in brackets; divergent branches; barriers per block.
std::string row(const simt::KernelCounts& kernel, std::uint64_t barriers) {
  using enum simt::AccessKind;
  const auto read = kernel.total(global_read), write = kernel.total(global_write),
             atomic = kernel.total(global_atomic);
  std::uint64_t rounds = 0, fewest_rounds = 0;
  for (const auto kind : {shared_read, shared_write, shared_atomic}) {
    rounds += kernel.total(kind).rounds;
    fewest_rounds += kernel.total(kind).fewest_rounds;
  }
  return "| `" + kernel.name + "` | " + std::to_string(read.warps + write.warps + atomic.warps) + " | " +
         of_fewest(read.sectors + atomic.sectors, read.fewest_sectors + atomic.fewest_sectors) + " | " +
         of_fewest(write.sectors, write.fewest_sectors) + " | " + of_fewest(rounds, fewest_rounds) + " | " +
         std::to_string(kernel.total_branches().diverged) + " | " + std::to_string(barriers / kernel.blocks) +
         " |";
}

int count(const Task& task, bool in_a_row) {
  if (!simt::can_count()) throw std::runtime_error("this build of the emulator does not count");
  const Size size = task.sizes.back();
  const Problem problem(task, size);
  const std::uint64_t barriers = simt::executor_stats().block_barriers;
  simt::start_counting();
  problem.run();
  const cudaError_t status = cudaDeviceSynchronize();
  const simt::Counts counts = simt::stop_counting();
  check(status, "the kernel");
  if (in_a_row) {
    for (const simt::KernelCounts& kernel : counts.kernels)
      std::printf("%s\n", row(kernel, simt::executor_stats().block_barriers - barriers).c_str());
  } else {
    std::printf("at %d x %d, %s", size.rows, size.cols, simt::table(counts).c_str());
  }
  return 0;
}
#endif

int main_of(std::span<char*> arguments) {
  const Task task = lab::task();
  const std::string what = arguments.empty() ? "" : arguments[0];
  if (what.empty()) return check_all(task, task.sizes);
  if (what == "--once") return check_all(task, std::span(task.sizes).last(1));
  if (what == "--time") return time_large(task);
  if (what == "--formula") return std::printf("%s\n", task.formula.c_str()) < 0;
#if defined(ATHANOR_SIMT)
  if (what == "--count" || what == "--row") return count(task, what == "--row");
#endif
  std::fprintf(stderr, "the argument must be --once, --time, --formula, --count or --row, but is '%s'\n",
               what.c_str());
  return 2;
}

}  // namespace

float* scratch(std::size_t length) {
  static std::map<std::size_t, DeviceArray> arrays;
  const auto [found, is_new] = arrays.try_emplace(length, length);
  if (is_new) check(cudaMemset(found->second.data(), 0, found->second.bytes()), "cudaMemset");
  return found->second.data();
}

}  // namespace lab

int main(int count, char** arguments) {
  try {
    return lab::main_of(std::span(arguments, static_cast<std::size_t>(count)).subspan(1));
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 3;
  }
}
