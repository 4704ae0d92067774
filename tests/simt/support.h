#pragma once

#include <cmath>
#include <cstddef>
#include <fstream>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "simt/emulator/options.h"

namespace simt::test {

#define EXPECT_OK(expression) EXPECT_EQ(expression, cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError())

/// Of all tests. Set before the first call of the runtime, which makes them.
constexpr int kDevices = 3;
inline const bool has_devices = (options().devices = kDevices, true);

constexpr bool can_find_races() {
#if defined(SIMT_RACE)
  return true;
#else
  return false;
#endif
}

/// 1, 2, ...
inline std::vector<float> numbers(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = static_cast<float>(i + 1);
  return x;
}

inline bool is_nan(float value) {
  return std::isnan(value);
}

/// Device memory for the length of a scope.
template <class T> class OnDevice {
 public:
  explicit OnDevice(std::size_t count) : count_(count) { EXPECT_OK(cudaMalloc(&data_, count * sizeof(T))); }
  explicit OnDevice(const std::vector<T>& values) : OnDevice(values.size()) {
    EXPECT_OK(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data() const { return data_; }
  std::vector<T> read() const {
    std::vector<T> values(count_);
    EXPECT_OK(cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// Pinned memory for the length of a scope.
template <class T> class Pinned {
 public:
  explicit Pinned(std::size_t count) { EXPECT_OK(cudaMallocHost(&data_, count * sizeof(T))); }
  ~Pinned() { cudaFreeHost(data_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

  T* data() const { return data_; }
  T& operator[](std::size_t i) const { return data_[i]; }

 private:
  T* data_ = nullptr;
};

class TestStream {
 public:
  explicit TestStream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_OK(cudaStreamCreateWithFlags(&stream_, flags));
  }
  ~TestStream() { cudaStreamDestroy(stream_); }
  TestStream(const TestStream&) = delete;
  TestStream& operator=(const TestStream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class TestEvent {
 public:
  explicit TestEvent(unsigned flags = cudaEventDisableTiming) {
    EXPECT_OK(cudaEventCreateWithFlags(&event_, flags));
  }
  ~TestEvent() { cudaEventDestroy(event_); }
  TestEvent(const TestEvent&) = delete;
  TestEvent& operator=(const TestEvent&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// What the code's text is; the error is taken, and a fault of the device, which stays, ended.
inline std::string text_of(cudaError_t code) {
  std::string text = cudaGetErrorString(code);
  if (cudaGetLastError() == cudaErrorLaunchFailure) cudaDeviceReset();
  return text;
}

/// Runs what is queued, and returns the diagnosis; empty where all is well. The device works again
/// afterwards.
inline std::string diagnosis() {
  const cudaError_t code = cudaDeviceSynchronize();
  if (code == cudaSuccess) return {};
  return text_of(code);
}

/// "planted.cu:17", for the line of that file marked `// line: NAME`.
inline std::string marked_line(const std::string& file_name, const std::string& name) {
  std::ifstream file(ATHANOR_SIMT_TEST_DIR "/" + file_name);
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    if (text.ends_with("// line: " + name)) return file_name + ":" + std::to_string(number);
  }
  ADD_FAILURE() << "no line of " << file_name << " is marked " << name;
  return "?";
}
inline std::string planted_line(const std::string& name) {
  return marked_line("planted.cu", name);
}

/// Runs a body in the orders forward, reverse and three random ones, of threads, of streams and of the sums
/// of tensor cores.
template <class F> void in_all_orders(F&& body) {
  const Options saved = options();  // the body may change them
  for (const auto kind : {Order::Kind::forward, Order::Kind::reverse, Order::Kind::random}) {
    for (std::uint64_t seed = 1; seed <= (kind == Order::Kind::random ? 3 : 1); ++seed) {
      SCOPED_TRACE(testing::Message() << "order " << static_cast<int>(kind) << ", seed " << seed);
      options().threads = options().streams = options().sums = {kind, seed};
      body();
    }
  }
  options() = saved;
}

/// The same, with asynchronous work done late, and at once.
template <class F> void early_and_late(F&& body) {
  for (const Async async : {Async::late, Async::at_issue}) {
    SCOPED_TRACE(async == Async::late ? "late" : "at issue");
    const Async saved = options().async;
    options().async = async;
    in_all_orders(body);
    options().async = saved;
  }
}

/// Whether the text names the value; a number at its beginning or end is the whole number: planted.cu:13 is
/// not in planted.cu:130.
inline bool says(const std::string& text, const std::string& value) {
  const auto both_digits = [](char a, char b) { return a >= '0' && a <= '9' && b >= '0' && b <= '9'; };
  if (value.empty()) return true;
  for (auto at = text.find(value); at != text.npos; at = text.find(value, at + 1)) {
    const std::size_t end = at + value.size();
    if (at > 0 && both_digits(text[at - 1], value.front())) continue;
    if (end < text.size() && both_digits(value.back(), text[end])) continue;
    return true;
  }
  return false;
}

#define EXPECT_TEXT(text, value) EXPECT_TRUE(says(text, value)) << "'" << (value) << "' is not in: " << (text)

/// The x of every "thread (x,y,z)" of a text, in its order.
inline std::vector<unsigned> threads_in(const std::string& text) {
  std::vector<unsigned> threads;
  const std::string word = "thread (";
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    threads.push_back(static_cast<unsigned>(std::stoul(text.substr(at + word.size()))));
  }
  return threads;
}

/// A kernel of planted.cu, and what must be named: kind of mistake, thread, number; @NAME is the line marked
/// so. Where the order decides which threads are caught, `caught` knows whether the first and the last that
/// are named can be.
struct Planted {
  const char* name;
  cudaError_t (*run)(float* out);
  std::vector<const char*> parts;
  bool (*caught)(unsigned a, unsigned b) = nullptr;

  Planted by(bool (*threads)(unsigned a, unsigned b)) const { return {name, run, parts, threads}; }
  friend std::ostream& operator<<(std::ostream& to, const Planted& bug) { return to << bug.name; }
};

inline const auto name_of = [](const auto& bug) { return bug.param.name; };  ///< for a test of each

/// BUG(plain_add, "race in global memory", "@plain_add")
#define BUG(name, ...) \
  Planted {            \
#name, name, {     \
      __VA_ARGS__      \
    }                  \
  }

inline void expect_found(const Planted& bug, const std::string& file = "planted.cu") {
  early_and_late([&] {
    const OnDevice<float> out(std::vector<float>(128, 0.0f));
    EXPECT_OK(bug.run(out.data()));
    const std::string text = diagnosis();
    EXPECT_TEXT(text, std::string("kernel ") + bug.name);
    for (const std::string part : bug.parts) {
      EXPECT_TEXT(text, part[0] == '@' ? marked_line(file, part.substr(1)) : part);
    }
    if (bug.caught) {
      const std::vector<unsigned> threads = threads_in(text);
      EXPECT_TRUE(!threads.empty() && bug.caught(threads.front(), threads.back())) << text;
    }
    EXPECT_OK(cudaMemset(out.data(), 0, 4));
    EXPECT_EQ(diagnosis(), "") << "the device works again";
  });
}

}  // namespace simt::test
