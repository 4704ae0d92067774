#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "product.h"
#include "simt/emulator/executor.h"
#include "simt/emulator/options.h"

namespace {

// What one thread has done in a launch.
struct Thread {
  std::vector<std::vector<int>> groups{{}};  // of steps that it copied; the last is open
  std::map<int, bool> arrived;               // of the steps that it copied
  int multiplied = 0;                        // steps
};

// The first mistake of each kind in a launch, in words; empty if there is none.
struct Notes {
  int steps = 0;
  std::map<std::pair<int, int>, Thread> threads;
  std::string beyond, early, idle, refilled;

  Thread& of(Here here) { return threads[{here.block, here.thread}]; }
};
Notes notes;

std::string number(int value) {
  return std::to_string(value);
}

}  // namespace

bool note_copy(Here here, int step) {
  if (step >= notes.steps || step < 0) {
    if (notes.beyond.empty())
      notes.beyond = "a copy of step " + number(step) + " was started, but there are the steps 0 to " +
                     number(notes.steps - 1) + " only: it would read beyond the matrix";
    return false;
  }
  for (int other = 0; other < kTile * kTile && step >= kStages && notes.refilled.empty(); ++other) {
    const int reading = notes.of({here.block, other}).multiplied;
    if (reading > step - kStages) continue;
    notes.refilled = "Thread " + number(here.thread) + " started to copy step " + number(step) +
                     " when thread " + number(other) + " had not multiplied step " + number(step - kStages) +
                     ", which lies in the same stage: a barrier must come between the product and that copy";
  }
  notes.of(here).groups.back().push_back(step);
  notes.of(here).arrived[step] = false;
  return true;
}

void note_group(Here here) {
  notes.of(here).groups.push_back({});
}

void note_wait(Here here, int but) {
  Thread& thread = notes.of(here);
  const int closed = static_cast<int>(thread.groups.size()) - 1;
  for (int group = 0; group < closed - but; ++group) {
    for (const int step : thread.groups[static_cast<std::size_t>(group)]) thread.arrived[step] = true;
  }
}

void note_multiply(Here here) {
  Thread& thread = notes.of(here);
  const int step = thread.multiplied++, steps = notes.steps;
  const std::string who =
      "thread " + number(here.thread) + " multiplied step " + number(step) + " of " + number(steps);
  if (notes.early.empty()) {
    const bool open = !thread.groups.back().empty() && thread.groups.size() == 1;
    if (!thread.arrived.contains(step))
      notes.early = who + ", but had not started its own copy for it";
    else if (!thread.arrived[step] && open)
      notes.early = who + ", but its copies belong to no group: a wait does not know of them";
    else if (!thread.arrived[step] && step > 0 && step + 2 >= steps)
      notes.early = who +
                    ", whose copy may not have arrived. The steps before had: at the end there is nothing "
                    "left to copy, but each step must close a group, if an empty one, or the wait counts one "
                    "too few";
    else if (!thread.arrived[step])
      notes.early = who +
                    ", whose copy may not have arrived: at that wait the group of this step was among those "
                    "that may be pending. The groups behind it are the latest ones: how many are there?";
  }
  const auto flying = std::count_if(thread.arrived.begin(), thread.arrived.end(),
                                    [&](const auto& copy) { return copy.first > step && !copy.second; });
  if (notes.idle.empty() && step + 2 < steps && flying < 2)
    notes.idle = who + " while " + (flying == 0 ? "no later step was" : "only one later step was") +
                 " in flight. " +
                 (thread.arrived.contains(step + 2)
                      ? "Step " + number(step + 1) + " or " + number(step + 2) +
                            " was waited for, too: wait for the step that comes next, and for no more"
                      : "Step " + number(step + 2) + " must be started before step " + number(step) +
                            " is multiplied");
}

namespace {

class DeviceArray {
 public:
  explicit DeviceArray(const std::vector<float>& values) : count_(values.size()) {
    void* memory = nullptr;
    cudaMalloc(&memory, bytes());
    data_ = static_cast<float*>(memory);
    cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  float* data() const { return data_; }
  std::vector<float> values() const {
    std::vector<float> result(count_);
    cudaMemcpy(result.data(), data_, bytes(), cudaMemcpyDeviceToHost);
    return result;
  }

 private:
  std::size_t bytes() const { return count_ * sizeof(float); }

  float* data_ = nullptr;
  std::size_t count_;
};

// Small whole numbers, so every order of a sum gives the same bits.
std::vector<float> numbers(int count, int seed) {
  std::vector<float> all(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i)
    all[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + i / 37 + seed * 5) % 9 - 4);
  return all;
}

struct Result {
  std::string report;  // of the emulator
  std::string wrong;   // of the values
  std::uint64_t barriers = 0;
};

Result run(int rows, int columns, int steps) {
  const int depth = steps * kDepth;
  const std::vector<float> left = numbers(rows * depth, 1), right = numbers(columns * depth, 2);
  const DeviceArray a(left), b(right), y(std::vector<float>(static_cast<std::size_t>(rows * columns), NAN));
  notes = {};
  notes.steps = steps;
  const std::uint64_t before = simt::executor_stats().block_barriers;
  cudaError_t status = multiply(Problem{a.data(), b.data(), y.data(), rows, columns, depth});
  if (status == cudaSuccess) status = cudaDeviceSynchronize();
  Result result;
  result.barriers = simt::executor_stats().block_barriers - before;
  if (status != cudaSuccess) {
    result.report = cudaGetErrorString(status);
    return result;
  }
  const std::vector<float> got = y.values();
  for (int i = 0; i < rows && result.wrong.empty(); ++i) {
    for (int j = 0; j < columns && result.wrong.empty(); ++j) {
      float sum = 0;
      for (int k = 0; k < depth; ++k)
        sum += left[static_cast<std::size_t>(i * depth + k)] * right[static_cast<std::size_t>(j * depth + k)];
      const float value = got[static_cast<std::size_t>(i * columns + j)];
      if (value != sum)
        result.wrong = "y[" + number(i) + "][" + number(j) + "] must be " + std::to_string(sum) +
                       ", but is " + std::to_string(value);
    }
  }
  return result;
}

// What the detector says of the launch before, and what it means.
std::string explained(const std::string& report) {
  if (report.find("race") == std::string::npos) return report;
  if (report.find(" read") == std::string::npos)
    return report +
           "\nTwo steps were copied to one stage at a time: those of step s belong in stages[s % kStages]";
  if (!notes.refilled.empty()) return report + "\n" + notes.refilled;
  return report +
         "\nA tile was read before another thread's copy was known to have arrived: each thread must wait "
         "for its own copy, and a barrier must follow the wait, before any thread reads the tile";
}

TEST(Pipeline, EverySize) {
  for (const int steps : {1, 2, 3, 4, 7}) {
    const Result result = run(16, 32, steps);
    ASSERT_TRUE(result.report.empty())
        << "with a depth of " << steps * kDepth << ", the kernel was stopped: " << result.report;
    ASSERT_TRUE(notes.beyond.empty()) << notes.beyond;
    ASSERT_TRUE(result.wrong.empty()) << "with a depth of " << steps * kDepth << ", " << result.wrong
                                      << ": the tiles of step s belong in stages[s % kStages]";
  }
  const Result result = run(48, 32, 5);
  ASSERT_TRUE(result.report.empty()) << "with six blocks, the kernel was stopped: " << result.report;
  ASSERT_TRUE(result.wrong.empty()) << "with six blocks, " << result.wrong;
}

TEST(Pipeline, WaitsForItsStep) {
  for (const int steps : {7, 3, 2, 1}) {
    run(16, 16, steps);
    ASSERT_TRUE(notes.early.empty()) << notes.early;
  }
}

TEST(Pipeline, HasNoRace) {
  using enum simt::Order::Kind;
  for (const simt::Order order : {simt::Order{forward, 1}, simt::Order{reverse, 1}, simt::Order{random, 7}}) {
    simt::options().threads = order;
    for (const int steps : {7, 2, 1}) {
      const Result result = run(16, 16, steps);
      ASSERT_TRUE(result.report.empty()) << explained(result.report);
    }
  }
}

TEST(Pipeline, KeepsTwoStepsInFlight) {
  run(16, 16, 7);
  ASSERT_TRUE(notes.idle.empty()) << notes.idle;
}

TEST(Pipeline, NeedsOneBarrierAStep) {
  const Result result = run(16, 16, 12);
  ASSERT_LE(result.barriers, 13u)
      << "12 steps took " << result.barriers
      << " barriers. One a step is enough: a thread that is past it knows that all copies of this step have "
         "arrived, and that all threads have multiplied the step before";
  ASSERT_GE(result.barriers, 1u) << "without a barrier no thread knows of the others' copies";
}

}  // namespace
