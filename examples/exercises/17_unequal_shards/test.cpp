#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "mean.h"

namespace {

struct Pass {
  double mean;
  int samples;
};
using Rank = std::vector<Pass>;  // its backward passes in a step

// The result of one step on all ranks; counts calls of all_reduce on each. Sums go through a first round, in
// which each rank's call is answered with nothing, only to collect what it sends.
struct Job {
  explicit Job(int world) { ranks.assign(static_cast<std::size_t>(world), Gradient(1, world)); }

  Numbers step(const std::vector<Rank>& passes) {
    std::vector<Gradient> rehearsal = ranks;
    Numbers total;
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      for (const Pass& pass : passes[r])
        rehearsal[r].add({pass.mean}, pass.samples), ranks[r].add({pass.mean}, pass.samples);
      rehearsal[r].finish([&](Numbers& values) {
        total.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) total[i] += values[i];
      });
    }
    Numbers results;
    for (Gradient& rank : ranks) {
      int calls = 0;
      const Numbers result = rank.finish([&](Numbers& values) {
        ++calls;
        if (values.size() == total.size()) values = total;
      });
      most_calls = std::max(most_calls, calls), least_calls = std::min(least_calls, calls);
      results.push_back(result.size() == 1 ? result[0] : std::nan(""));
    }
    return results;
  }
  std::vector<Gradient> ranks;
  int most_calls = 0, least_calls = 100;
};

TEST(Mean, OfEqualParts) {
  Job job(2);
  EXPECT_EQ(job.step({{{1, 4}}, {{3, 4}}}), (Numbers{2, 2})) << "means 1 and 3 over four samples each";
  EXPECT_EQ(job.step({{{5, 4}}, {{7, 4}}}), (Numbers{6, 6})) << "the next step begins with nothing";
}

TEST(Mean, OfUnequalParts) {
  Job job(2);
  const Numbers result = job.step({{{1, 3}}, {{6, 2}}});
  EXPECT_NE(result[0], 3.5)
      << "this is the mean of the ranks' means: a sample on the smaller part counts for more";
  EXPECT_NE(result[0], 7.5) << "this is the sum over ranks divided by the number of ranks";
  EXPECT_NE(result[0], 15) << "this is the sum over all samples: divide by their number";
  EXPECT_EQ(result, (Numbers{3, 3})) << "three samples of mean 1 and two of mean 6";
}

TEST(Mean, WithARankWithoutSamples) {
  Job job(3);
  EXPECT_EQ(job.step({{{2, 2}}, {{std::nan(""), 0}}, {{5, 1}}}), (Numbers{3, 3, 3}))
      << "rank 1 has no sample, and its mean is 0/0: 0 times NaN is NaN, so that it must be left out";
  EXPECT_EQ(job.step({{{2, 2}}, {}, {{5, 1}}}), (Numbers{3, 3, 3})) << "rank 1 ran no backward pass at all";
  EXPECT_EQ(job.step({{}, {}, {}}), (Numbers{0, 0, 0})) << "no rank has a sample: 0, not 0/0";
}

TEST(Mean, OverAccumulatedBatches) {
  Job job(2);
  const Numbers result = job.step({{{1, 4}, {1, 4}, {7, 1}}, {{2, 4}, {2, 4}, {2, 1}}});
  EXPECT_NE(result[0], 2.5) << "every backward pass counted the same, whatever its number of samples";
  EXPECT_NEAR(result[0], 33.0 / 18, 1e-12) << "8 samples of 1, one of 7, and 9 of 2";
  EXPECT_EQ(result[0], result[1]) << "all ranks must have the same gradient";
}

TEST(Mean, TakesOneAllReduce) {
  Job job(2);
  job.step({{{1, 3}}, {{6, 2}}});
  EXPECT_EQ(job.most_calls, 1) << "a second all-reduce for the number of samples: send it with the gradient";
  EXPECT_EQ(job.least_calls, 1) << "each rank must call all_reduce, or the others wait for it";
}

}  // namespace
