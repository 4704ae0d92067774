#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "nn/quantized/choose.h"
#include "nn/quantized/quantized_network.h"
#include "tests/support/errors.h"

namespace athanor::nn::choose_quantizer_test {

constexpr std::int64_t kBins = Histogram::kBins;

ObservedValue observed(const std::vector<float>& numbers) {
  ObservedValue value{.name = "x", .histogram = {}};
  value.min = *std::min_element(numbers.begin(), numbers.end());
  value.max = *std::max_element(numbers.begin(), numbers.end());
  value.histogram.add(numbers, value.min, value.max);
  return value;
}

/// Numbers in the middle of bins of the width 1 that begin at `low`, so many in each.
template <class F> ObservedValue observed_in_bins(std::int64_t low, const F& count) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < kBins; ++i)
    numbers.insert(numbers.end(), static_cast<std::size_t>(count(i)), static_cast<float>(low + i) + 0.5F);
  ObservedValue value = observed(numbers);
  EXPECT_EQ(value.histogram.width(), 1);
  return value;
}

Quantizer covering(double low, double high) {
  ObservedValue value;
  value.min = static_cast<float>(low);
  value.max = static_cast<float>(high);
  return min_max_quantizer(value);
}

/// The largest and the smallest number that a quantizer stores.
double top_of(const Quantizer& quantizer) {
  return double{quantizer.scale} * (255 - quantizer.zero);
}
double bottom_of(const Quantizer& quantizer) {
  return double{quantizer.scale} * -quantizer.zero;
}

TEST(ChooseQuantizer, NothingToStoreIsTheScaleOne) {
  for (const QuantizerMethod method : kQuantizerMethods) {
    EXPECT_EQ(choose_quantizer({}, method), Quantizer()) << name_of(method);
    EXPECT_EQ(choose_quantizer(observed({0, 0, 0}), method), Quantizer()) << name_of(method);
  }
}

TEST(ChooseQuantizer, AConstantIsStoredExactly) {
  for (const float constant : {0.3F, 1000.5F, 3e6F, -0.7F}) {
    for (const std::size_t count : {1u, 10000u}) {
      for (const QuantizerMethod method : kQuantizerMethods) {
        const Quantizer quantizer = choose_quantizer(observed(std::vector(count, constant)), method);
        const double stored = constant > 0 ? top_of(quantizer) : bottom_of(quantizer);
        EXPECT_NEAR(stored, constant, 1e-6 * std::abs(constant)) << name_of(method);
        EXPECT_EQ(quantizer.zero, constant > 0 ? 0 : 255);
      }
    }
  }
}

TEST(ChooseQuantizer, NumbersFarFromZeroKeepZero) {
  const ObservedValue value = observed({1e6F, 1e6F + 1, 1e6F + 2});
  for (const QuantizerMethod method : kQuantizerMethods) {
    const Quantizer quantizer = choose_quantizer(value, method);
    EXPECT_EQ(quantizer.zero, 0) << name_of(method);
    EXPECT_NEAR(top_of(quantizer), 1e6, 4000) << name_of(method) << ": to a step";
  }
}

TEST(ChooseQuantizer, MinMaxCoversAll) {
  const ObservedValue value =
      observed_in_bins(-100, [](std::int64_t i) { return i < 50 || i == 2000 ? 100 : 0; });
  EXPECT_EQ(choose_quantizer(value, QuantizerMethod::min_max), covering(-99.5, 1900.5));
}

TEST(ChooseQuantizer, PercentileLeavesOutTheFurthest) {
  const auto covered = [&](std::int64_t low, double percentile) {
    const auto count = [](std::int64_t i) {
      return i >= 500 && i < 1500 ? 1000 : i == 0 || i == kBins - 1 ? 50 : 0;
    };
    return choose_quantizer(observed_in_bins(low, count), QuantizerMethod::percentile, percentile);
  };
  // One in 10,000 of 1,000,100 numbers is 100: both lots of 50, or one and no part of 1000.
  EXPECT_EQ(covered(-1000, 99.99), covering(-500, 500));
  EXPECT_EQ(covered(-1000, 99.992), covering(-999.5, 1047.5)) << "40 at each end are less than a lot";
  EXPECT_EQ(covered(0, 99.992), covering(0, 1500)) << "of numbers of one sign all are left out at one end";
  EXPECT_EQ(covered(-kBins, 99.992), covering(500 - kBins, 0));
  EXPECT_EQ(covered(0, 100), covering(0, 2047.5));
  EXPECT_EQ(covered(-1000, 99), covering(-496, 496)) << "four parts of 1000, and what lies beyond them";
}

/// How many bins Migacz's pseudo-code covers, of numbers that are not negative.
std::int64_t migacz(std::vector<std::int64_t> bins) {
  bins[0] = bins[1];
  std::int64_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::int64_t n = kBins; n >= 256; --n) {
    std::vector<double> p(bins.begin(), bins.begin() + n), q(p.size());
    for (auto bin = bins.begin() + n; bin != bins.end(); ++bin) p.back() += static_cast<double>(*bin);
    for (std::int64_t level = 0; level < 256; ++level) {
      const std::int64_t from = level * n / 256, to = (level + 1) * n / 256;
      double sum = 0, filled = 0;
      for (std::int64_t i = from; i < to; ++i) {
        sum += static_cast<double>(bins[static_cast<std::size_t>(i)]);
        filled += bins[static_cast<std::size_t>(i)] > 0 ? 1 : 0;
      }
      for (std::int64_t i = from; i < to; ++i)
        q[static_cast<std::size_t>(i)] = bins[static_cast<std::size_t>(i)] > 0 ? sum / filled : 0;
    }
    double p_sum = 0, q_sum = 0, divergence = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
      p_sum += p[i];
      q_sum += q[i];
    }
    for (std::size_t i = 0; i < p.size(); ++i)
      if (p[i] > 0) divergence += p[i] / p_sum * std::log(p[i] / p_sum / (q[i] / q_sum));
    if (divergence < least - 1e-12) {
      least = divergence;
      best = n;
    }
  }
  return best;
}

TEST(ChooseQuantizer, EntropyAgreesWithItsSource) {
  std::mt19937 random(3);
  int clipped = 0;
  for (const double width : {40.0, 90.0, 200.0, 600.0}) {
    std::exponential_distribution<double> numbers(1 / width);
    std::vector<std::int64_t> bins(kBins);
    for (int i = 0; i < 300000; ++i)
      ++bins[static_cast<std::size_t>(std::min(numbers(random), static_cast<double>(kBins - 1)))];
    bins[0] += 1000000;  // as ReLU does
    bins.back() = 3;
    const std::int64_t best = migacz(bins);
    clipped += best < kBins;
    const auto count = [&](std::int64_t i) { return bins[static_cast<std::size_t>(i)]; };
    EXPECT_EQ(choose_quantizer(observed_in_bins(0, count), QuantizerMethod::entropy),
              covering(0, std::min(static_cast<double>(best), 2047.5)))
        << width;
  }
  EXPECT_GE(clipped, 2);
}

TEST(ChooseQuantizer, EntropyCoversAllOfAUniformRange) {
  for (const std::int64_t low : {0, -1024, -300, -2048}) {
    const ObservedValue value = observed_in_bins(low, [](std::int64_t) { return 100; });
    EXPECT_EQ(choose_quantizer(value, QuantizerMethod::entropy), min_max_quantizer(value)) << low;
  }
}

TEST(ChooseQuantizer, EntropyLeavesOutOutliersOfBothSigns) {
  const auto bell = [](std::int64_t i) {  // of the deviation 100
    const double z = (static_cast<double>(i) - 1023.5) / 100;
    return static_cast<std::int64_t>(1e4 * std::exp(-z * z / 2)) + (i == 0 || i == kBins - 1 ? 2 : 0);
  };
  const Quantizer quantizer = choose_quantizer(observed_in_bins(-1024, bell), QuantizerMethod::entropy);
  EXPECT_LT(top_of(quantizer), 600);
  EXPECT_GT(top_of(quantizer), 200);
  EXPECT_NEAR(top_of(quantizer), -bottom_of(quantizer), 2 * double{quantizer.scale});
  // The near end of a range that is not symmetric stays where it is.
  const auto skewed = [&](std::int64_t i) { return i < 1000 ? 0 : bell(i); };
  const Quantizer near = choose_quantizer(observed_in_bins(-1024, skewed), QuantizerMethod::entropy);
  EXPECT_NEAR(bottom_of(near), -24, double{near.scale});
  EXPECT_LT(top_of(near), 600);
}

TEST(ChooseQuantizer, NamesAreThoseOfTheFlag) {
  for (const QuantizerMethod method : kQuantizerMethods)
    EXPECT_EQ(quantizer_method_named(name_of(method)), method);
  EXPECT_EQ(quantizer_method_named("max"), std::nullopt);
}

TEST(ChooseQuantizer, RefusesWhatIsNoPercentile) {
  for (const double percentile : {0.0, -1.0, 100.5, std::nan("")})
    EXPECT_ERROR(ArgumentError, choose_quantizer({}, QuantizerMethod::percentile, percentile), "percentile",
                 "100");
}

}  // namespace athanor::nn::choose_quantizer_test
