#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

/// Bytes of all vectors that are alive, and the most that were.
struct Memory {
  long now = 0, most = 0;
};
inline Memory memory;

/// A vector of numbers that do not change. Copies share them: they cost nothing.
class Values {
 public:
  Values() = default;
  explicit Values(std::vector<float> numbers) : shared_(std::make_shared<Counted>(std::move(numbers))) {}

  std::size_t size() const { return shared_ ? shared_->numbers.size() : 0; }
  float operator[](std::size_t i) const { return shared_->numbers[i]; }

 private:
  struct Counted {
    explicit Counted(std::vector<float> from) : numbers(std::move(from)) {
      memory.now += bytes();
      memory.most = std::max(memory.most, memory.now);
    }
    ~Counted() { memory.now -= bytes(); }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    long bytes() const { return static_cast<long>(numbers.size() * sizeof(float)); }
    std::vector<float> numbers;
  };
  std::shared_ptr<const Counted> shared_;
};

template <class F> Values for_each(std::size_t size, const F& number) {
  std::vector<float> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = number(i);
  return Values(std::move(all));
}

/// What the ops of a chain have recorded: for each op, how dL/dx follows from dL/dy, with the vectors that it
/// saved for that. A tape ends with all that it holds.
class Tape {
 public:
  using Step = std::function<Values(const Values& dy)>;

  void record(Step step) { steps_.push_back(std::move(step)); }

  /// dL/dx of the first op, from dL/dy of the last. Runs the steps, last first, and frees each.
  Values backward(Values dy) {
    while (!steps_.empty()) {
      const Step step = std::move(steps_.back());
      steps_.pop_back();
      dy = step(dy);
    }
    return dy;
  }

 private:
  std::vector<Step> steps_;
};

/// A part of a network: computes y from x, and its ops record themselves on the tape.
using Block = std::function<Values(Tape& tape, const Values& x)>;

/// The place of the next random number. Each number depends on its place alone.
inline std::uint64_t next_random = 0;
/// True while a block is computed again: ops then leave statistics as they are.
inline bool recomputing = false;

// Ops.

struct Weight {
  explicit Weight(std::vector<float> numbers) : value(std::move(numbers)), gradient(value.size()) {}
  std::vector<float> value, gradient;
};

/// y = w x, for each element. Saves x.
inline Values scale(Tape& tape, Weight& w, const Values& x) {
  tape.record([&w, x](const Values& dy) {
    for (std::size_t i = 0; i < dy.size(); ++i) w.gradient[i] += dy[i] * x[i];
    return for_each(dy.size(), [&](std::size_t i) { return dy[i] * w.value[i]; });
  });
  return for_each(x.size(), [&](std::size_t i) { return x[i] * w.value[i]; });
}

/// y = max(x, 0). Saves y.
inline Values relu(Tape& tape, const Values& x) {
  const Values y = for_each(x.size(), [&](std::size_t i) { return std::max(x[i], 0.0f); });
  tape.record([y](const Values& dy) {
    return for_each(dy.size(), [&](std::size_t i) { return y[i] > 0 ? dy[i] : 0; });
  });
  return y;
}

/// Half of the elements, chosen at random, become 0, the others twice as large. Saves the place of its random
/// numbers alone, from which it draws them again.
inline Values dropout(Tape& tape, const Values& x) {
  const std::uint64_t first = std::exchange(next_random, next_random + x.size());
  const auto apply = [first](const Values& from) {
    return for_each(from.size(), [&](std::size_t i) {
      std::uint64_t z = (first + i + 1) * 0x9e3779b97f4a7c15u;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      return (z >> 40) % 2 == 0 ? 0.0f : 2 * from[i];
    });
  };
  tape.record(apply);
  return apply(x);
}

/// y = x - mean of x. The running mean moves a tenth of the way to that mean. Saves nothing.
inline Values centre(Tape& tape, float& running_mean, const Values& x) {
  const auto apply = [](const Values& from) {
    float sum = 0;
    for (std::size_t i = 0; i < from.size(); ++i) sum += from[i];
    const float mean = sum / static_cast<float>(from.size());
    return std::pair(mean, for_each(from.size(), [&](std::size_t i) { return from[i] - mean; }));
  };
  const auto [mean, y] = apply(x);
  if (!recomputing) running_mean += 0.1f * (mean - running_mean);
  tape.record([apply](const Values& dy) { return apply(dy).second; });
  return y;
}
