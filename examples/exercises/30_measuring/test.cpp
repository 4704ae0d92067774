#include <cstdint>
#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

#include "coin.h"
#include "compare.h"

namespace {

struct Machine {
  std::uint64_t state = 1;
  int runs = 0;
  std::string order;

  double uniform() {  // in [0, 1)
    state = state * 6364136223846793005 + 1442695040888963407;
    return static_cast<double>(state >> 11) * 0x1p-53;
  }
  // A program that takes `seconds`, on a machine that slows down, with some noise; the n-th run is
  // interrupted.
  Run program(char name, double seconds, double drift, double noise, int interrupted = 0) {
    return [=, this] {
      order += name;
      ++runs;
      const double time = seconds * (1 + drift * runs) * (1 + noise * uniform());
      return interrupted && runs % interrupted == 0 ? 20 * time : time;
    };
  }
};

TEST(Compare, FindsTheRatio) {
  Machine machine;
  const Comparison found = compare(machine.program('a', 2, 0, 0), machine.program('b', 1.5, 0, 0), 20);
  EXPECT_DOUBLE_EQ(found.ratio, 0.75) << "B takes 1.5 s where A takes 2 s";
  EXPECT_TRUE(found.differ) << "without noise every ratio is 0.75";
  EXPECT_THROW(compare(machine.program('a', 1, 0, 0), machine.program('b', 1, 0, 0), 5),
               std::invalid_argument)
      << "from 5 rounds no interval of 95 % follows";
}

TEST(Compare, RunsInTurns) {
  Machine machine;
  compare(machine.program('a', 1, 0, 0.01), machine.program('b', 1, 0, 0.01), 10);
  ASSERT_EQ(machine.order.size(), 20u) << "each program runs once a round";
  EXPECT_NE(machine.order, std::string(10, 'a') + std::string(10, 'b'))
      << "all runs of A came before those of B";
  EXPECT_NE(machine.order, "abababababababababab")
      << "A always ran first: what the first run leaves behind always helps or hurts B";
  EXPECT_TRUE(machine.order == "abbaabbaabbaabbaabba" || machine.order == "baabbaabbaabbaabbaab")
      << "in turns, the first alternating: " << machine.order;
}

TEST(Compare, SurvivesDrift) {
  Machine machine;
  const Comparison found = compare(machine.program('a', 1, 0.01, 0), machine.program('b', 1, 0.01, 0), 40);
  EXPECT_NEAR(found.ratio, 1, 0.01)
      << "the machine slowed down by 80 % over the measurement, and both programs are the same";
  EXPECT_FALSE(found.differ) << "the drift was taken for a difference";
}

TEST(Compare, SurvivesOutliers) {
  Machine machine;
  const Comparison found =
      compare(machine.program('a', 1, 0, 0.02), machine.program('b', 0.9, 0, 0.02, 7), 41);
  EXPECT_NEAR(found.ratio, 0.9, 0.02)
      << "every seventh run was interrupted: the mean moves, the median does not";
  EXPECT_TRUE(found.differ) << "B is 10 % faster, with 2 % of noise";
  EXPECT_LE(found.low, found.ratio);
  EXPECT_GE(found.high, found.ratio);
}

TEST(Compare, SaysNothingOfEqualPrograms) {
  Machine machine;
  int wrong = 0, missed = 0;
  for (int i = 0; i < 400; ++i) {
    wrong += compare(machine.program('a', 1, 0, 0.2), machine.program('b', 1, 0, 0.2), 20).differ;
    missed += !compare(machine.program('a', 1, 0, 0.15), machine.program('b', 1.1, 0, 0.15), 20).differ;
  }
  EXPECT_LE(wrong, 400 * 0.08)
      << wrong
      << " of 400 comparisons of a program with itself found a difference: at most one in twenty may";
  EXPECT_LE(missed, 8) << "a program that is 10 % slower, with 15 % of noise, was not noticed " << missed
                       << " times in 400: the interval is too wide";
}

}  // namespace
