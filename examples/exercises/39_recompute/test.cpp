#include <algorithm>
#include <deque>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "checkpoint.h"
#include "tape.h"

namespace {

constexpr std::size_t kSize = 1000;
constexpr long kBytes = kSize * sizeof(float);

Values numbers(int seed) {
  return for_each(kSize, [&](std::size_t i) {
    return static_cast<float>((i * 7 + static_cast<std::size_t>(seed) * 13) % 101) / 37 - 1;
  });
}

std::vector<float> as_vector(const Values& x) {
  std::vector<float> all;
  for (std::size_t i = 0; i < x.size(); ++i) all.push_back(x[i]);
  return all;
}

// A network of layers y = relu(w x), each with a weight of its own.
struct Layers {
  explicit Layers(int count) {
    for (int i = 0; i < count; ++i) {
      weights.emplace_back(as_vector(numbers(i + 3)));
      Weight& w = weights.back();
      blocks.push_back([this, &w, i](Tape& tape, const Values& x) {
        calls.push_back(i);
        return relu(tape, scale(tape, w, x));
      });
    }
  }
  std::deque<Weight> weights;
  std::vector<Block> blocks;
  std::vector<int> calls;  // which layer, in the order of time

  Block part(int first, int end) const {
    return [this, first, end](Tape& tape, const Values& x) {
      Values y = x;
      for (int i = first; i < end; ++i) y = blocks[static_cast<std::size_t>(i)](tape, y);
      return y;
    };
  }
  std::vector<std::vector<float>> gradients() const {
    std::vector<std::vector<float>> all;
    for (const Weight& w : weights) all.push_back(w.gradient);
    return all;
  }
};

// Of a forward and a backward pass.
struct Pass {
  std::vector<float> y, dx;
  std::vector<std::vector<float>> dw;
};
template <class F> Pass pass(Layers& layers, const F& network) {
  Tape tape;
  const Values x = numbers(1), y = network(tape, x);
  Pass result;
  result.y = as_vector(y);
  result.dx = as_vector(tape.backward(numbers(2)));
  result.dw = layers.gradients();
  return result;
}

TEST(Checkpoint, HasTheSameBits) {
  Layers plain(4), kept(4);
  const Pass expected = pass(plain, [&](Tape& tape, const Values& x) { return plain.part(0, 4)(tape, x); });
  const Pass got = pass(kept, [&](Tape& tape, const Values& x) {
    const Values middle = checkpoint(tape, kept.part(0, 2), x);
    return kept.part(3, 4)(tape, checkpoint(tape, kept.part(2, 3), middle));
  });
  ASSERT_TRUE(got.y == expected.y) << "the block has another result";
  std::vector<float> twice = expected.dw[1];
  for (float& number : twice) number *= 2;
  ASSERT_FALSE(got.dw[1] == twice) << "the gradient of a weight in the block is twice as large: both "
                                      "computations are on a tape that goes back. The first "
                                      "must record on a tape of its own, which is dropped";
  ASSERT_TRUE(got.dw == expected.dw) << "the gradients of the weights differ";
  ASSERT_TRUE(got.dx == expected.dx) << "the gradient of x differs";

  Layers nested(4);
  const Pass again = pass(nested, [&](Tape& tape, const Values& x) {
    const Block outer = [&](Tape& inside, const Values& input) {
      return nested.part(3, 4)(inside,
                               checkpoint(inside, nested.part(1, 3), nested.part(0, 1)(inside, input)));
    };
    return checkpoint(tape, outer, x);
  });
  ASSERT_TRUE(again.y == expected.y && again.dx == expected.dx && again.dw == expected.dw)
      << "a checkpoint within a checkpoint gives other bits";
}

TEST(Checkpoint, KeepsItsInputAlone) {
  Layers layers(8);
  Tape tape;
  const long before = memory.now;
  Values x = numbers(1);
  const Values y = checkpoint(tape, layers.part(0, 8), x);
  const long beside = (memory.now - before) / kBytes - 2;
  ASSERT_GE(beside, 0) << "x and y must be alive";
  ASSERT_EQ(beside, 0)
      << "after the forward pass, " << beside
      << " vectors are alive beside x and y: those that the ops of the block have saved. Let the tape "
         "of the first computation end, and keep x";
  x = Values();
  ASSERT_EQ((memory.now - before) / kBytes, 2) << "the checkpoint must hold x, though nothing else does";
  memory.most = memory.now;
  const Values dx = tape.backward(numbers(2));
  ASSERT_EQ(layers.calls.size(), 16u) << "8 layers must be computed twice, once in each pass";
  ASSERT_LE((memory.most - before) / kBytes, 13)
      << "the second computation keeps more than the first would have";
  ASSERT_EQ((memory.now - before) / kBytes, 2) << "after the backward pass only y and dL/dx are alive";
}

TEST(Checkpoint, DrawsTheSameNumbers) {
  struct Drawn {
    std::vector<float> y, dx;
    std::uint64_t between, end;
  };
  const auto run = [](bool keeps) {
    next_random = 5000;
    Tape tape;
    const Block block = [](Tape& inside, const Values& x) { return dropout(inside, dropout(inside, x)); };
    const Values middle = keeps ? block(tape, numbers(1)) : checkpoint(tape, block, numbers(1));
    const Values y = dropout(tape, middle);
    const std::uint64_t between = next_random;
    const Values dx = tape.backward(numbers(2));
    return Drawn{as_vector(y), as_vector(dx), between, next_random};
  };
  const Drawn expected = run(true), got = run(false);
  ASSERT_EQ(got.between, expected.between) << "the forward pass took another number of random numbers";
  ASSERT_TRUE(got.y == expected.y) << "the forward pass took other random numbers";
  ASSERT_TRUE(got.dx == expected.dx) << "the second computation dropped other elements than the first: it "
                                        "must take its random numbers from the "
                                        "place where the first began";
  ASSERT_EQ(got.end, expected.end) << "after the backward pass the next op would take other numbers than "
                                      "without the checkpoint: next_random "
                                      "must go back to where it was before the second computation";
}

TEST(Checkpoint, MovesStatisticsOnce) {
  float mean = 0;
  std::vector<bool> runs;
  Tape tape;
  const Block block = [&](Tape& inside, const Values& x) {
    runs.push_back(recomputing);
    return centre(inside, mean, x);
  };
  const Values y = checkpoint(tape, block, numbers(1));
  ASSERT_FALSE(recomputing) << "the first computation must be over";
  const float once = mean;
  ASSERT_NE(once, 0) << "the first computation must move the running mean";
  tape.backward(numbers(2));
  ASSERT_EQ(runs.size(), 2u) << "the block must be computed twice";
  ASSERT_EQ(mean, once)
      << "the running mean has moved twice for one batch: recomputing must be true while the block is "
         "computed again";
  ASSERT_EQ(runs, (std::vector<bool>{false, true})) << "recomputing in the two computations";
  ASSERT_FALSE(recomputing)
      << "the next batch would not move the running mean: recomputing must be as it was before";
}

// The lengths of the segments, as the backward pass computed them again, in the order of the layers.
std::vector<int> lengths(int count, int segments) {
  Layers layers(count);
  pass(layers,
       [&](Tape& tape, const Values& x) { return run_in_segments(tape, layers.blocks, segments, x); });
  std::vector<int> found;
  for (std::size_t i = static_cast<std::size_t>(count); i < layers.calls.size(); ++i) {
    if (i == static_cast<std::size_t>(count) || layers.calls[i] != layers.calls[i - 1] + 1)
      found.push_back(0);
    ++found.back();
  }
  std::reverse(found.begin(), found.end());
  return found;
}

// In vectors, beside x.
long peak(int count, int segments) {
  Layers layers(count);
  Tape tape;
  const Values x = numbers(1);
  const long before = memory.now;
  memory.most = before;
  Values y =
      segments == 0 ? layers.part(0, count)(tape, x) : run_in_segments(tape, layers.blocks, segments, x);
  y = Values();
  tape.backward(numbers(2));
  return (memory.most - before) / kBytes;
}

TEST(Checkpoint, CutsIntoSegments) {
  ASSERT_EQ(lengths(10, 4), (std::vector<int>{3, 3, 2, 2}))
      << "10 layers in 4 segments: the layers of each, as the backward pass computed them again";
  ASSERT_EQ(lengths(16, 4), (std::vector<int>{4, 4, 4, 4})) << "16 layers in 4 segments";
  ASSERT_EQ(lengths(3, 3), (std::vector<int>{1, 1, 1})) << "3 layers in 3 segments";
  ASSERT_EQ(lengths(5, 1), (std::vector<int>{5})) << "5 layers in one segment";
  Layers plain(10), cut(10);
  const Pass expected = pass(plain, [&](Tape& tape, const Values& x) { return plain.part(0, 10)(tape, x); });
  const Pass got =
      pass(cut, [&](Tape& tape, const Values& x) { return run_in_segments(tape, cut.blocks, 4, x); });
  ASSERT_TRUE(got.y == expected.y && got.dx == expected.dx && got.dw == expected.dw)
      << "segments give other bits than all layers at once";
  const long whole = peak(16, 0), four = peak(16, 4);
  ASSERT_LE(four, 10) << "the peak of 16 layers in 4 segments is " << four
                      << " vectors, and that of all at once " << whole
                      << ": 3 inputs, 4 results, and what two ops need are enough";
}

TEST(Checkpoint, ChoosesTheirNumber) {
  ASSERT_NE(best_segments(16), 16)
      << "with a segment for each layer, all their inputs are alive: as many vectors as without a checkpoint";
  ASSERT_EQ(best_segments(16), 4) << "4 + 4 vectors";
  ASSERT_EQ(best_segments(100), 10) << "10 + 10 vectors";
  ASSERT_EQ(best_segments(1), 1);
  ASSERT_EQ(best_segments(12), 3) << "3 + 4 and 4 + 3 are the same: the smaller k";
  ASSERT_EQ(best_segments(15), 3) << "15 / 4 is rounded up: 4 + 4 is as many as 3 + 5";
  ASSERT_EQ(best_segments(1000), 28) << "28 + 36 and 32 + 32 are the same: the smaller k";
}

}  // namespace
