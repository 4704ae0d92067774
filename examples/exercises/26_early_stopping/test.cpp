#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "stopper.h"

namespace {

const double kNan = std::numeric_limits<double>::quiet_NaN(),
             kInfinity = std::numeric_limits<double>::infinity();

// The epoch, from 0, after which it stops; -1: never.
int stops_after(int patience, double min_delta, const Numbers& losses) {
  Stopper stopper(patience, min_delta);
  for (std::size_t i = 0; i < losses.size(); ++i)
    if (stopper.update(losses[i], {losses[i]})) return static_cast<int>(i);
  return -1;
}

TEST(Stopper, CountsEpochsWithoutImprovement) {
  EXPECT_EQ(stops_after(1, 0, {3, 2, 1, 0.5}), -1) << "it improves in each epoch";
  EXPECT_EQ(stops_after(1, 0, {3, 2, 2.5, 1}), 2) << "patience 1 ends with the first epoch that is no better";
  EXPECT_EQ(stops_after(2, 0, {3, 2, 2.5, 1, 2, 2}), 5)
      << "patience 2 needs two in a row: an improvement begins the count again";
  EXPECT_EQ(stops_after(2, 0, {2, 2, 2, 1}), 2) << "a tie is no improvement";
}

TEST(Stopper, ComparesWithTheBest) {
  EXPECT_EQ(stops_after(3, 0, {1, 5, 4, 3, 0}), 3) << "better than the epoch before, but never than the best";
  EXPECT_EQ(stops_after(1, 0.5, {2, 1.5, 1}), 1) << "a gain of exactly min_delta is none";
  EXPECT_EQ(stops_after(1, 0.5, {2, 1.4, 0.8}), -1) << "gains above min_delta count";
  EXPECT_EQ(stops_after(3, 0.5, {2, 1.75, 1.25, 1}), -1)
      << "1.75 is too small a gain over 2, but 1.25 is not: small gains add up, against the best that "
         "counted";
}

TEST(Stopper, StopsAtNan) {
  EXPECT_EQ(stops_after(5, 0, {2, 1, kNan}), 2) << "a loss of NaN never gets better";
  EXPECT_EQ(stops_after(5, 0, {2, -kInfinity, 1}), 1)
      << "minus infinity is below everything, and still no loss";
  Stopper stopper(5);
  stopper.update(2, {1});
  stopper.update(kNan, {2});
  EXPECT_EQ(stopper.best_weights(), (Numbers{1})) << "the weights that gave NaN are not the best";
}

TEST(Stopper, GivesTheBestWeights) {
  Stopper stopper(5);
  EXPECT_EQ(stopper.best_weights(), Numbers{}) << "before the first epoch there are none";
  Numbers weights{1, 1};
  stopper.update(3, weights);
  weights = {2, 2};
  stopper.update(1, weights);
  weights = {3, 3};
  EXPECT_EQ(stopper.best_weights(), (Numbers{2, 2}))
      << "the trainer has changed its weights since: keep a copy, not a pointer";
  stopper.update(2, weights);
  EXPECT_EQ(stopper.best_weights(), (Numbers{2, 2}))
      << "these are the weights of the last epoch, not of the best";
  stopper.update(1, weights);
  EXPECT_EQ(stopper.best_weights(), (Numbers{2, 2})) << "a tie does not replace the best";
}

TEST(Stopper, ContinuesAfterAResume) {
  const Numbers losses{5, 4, 4.5, 4.2, 3, 3.5, 3.2, 3.4, 3.3};
  for (std::size_t at = 0; at <= 6; ++at) {
    Stopper first(3);
    for (std::size_t i = 0; i < at; ++i) first.update(losses[i], {});
    Stopper second(3);
    second.restore(first.state());
    int stopped = -1;
    for (std::size_t i = at; i < losses.size() && stopped < 0; ++i)
      if (second.update(losses[i], {})) stopped = static_cast<int>(i);
    EXPECT_EQ(stopped, 7) << "resumed after " << at
                          << " epochs: the count of bad epochs and the best loss must survive";
  }
}

}  // namespace
