#include "nn/init.h"

#include "kernels/hash.h"
#include "nn/whitening.h"
#include "tests/support/ops.h"

namespace athanor::nn::init_test {

constexpr RandomKey kKey{1, 2};

struct Moments {
  double mean = 0, deviation = 0, least = 0, greatest = 0;
};

Moments moments(const Tensor& x) {
  const std::vector<double> values = x.to_vector();
  Moments m{0, 0, values[0], values[0]};
  for (const double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.least = std::min(m.least, v);
    m.greatest = std::max(m.greatest, v);
  }
  for (const double v : values)
    m.deviation += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}

TEST(Init, FansOfConvolutionsAreThoseOfKrsc) {
  EXPECT_EQ(init::fans({8, 3, 5, 2}).in, 3 * 5 * 2);
  EXPECT_EQ(init::fans({8, 3, 5, 2}).out, 3 * 5 * 8);
  EXPECT_EQ(init::fans({10, 84}).in, 84);
  EXPECT_EQ(init::fans({10, 84}).out, 10);
  EXPECT_THROW(init::fans({3}), ArgumentError);
}

TEST(Init, KaimingHasItsDeviationAndBounds) {
  const Tensor w = Tensor::empty({200, 3, 3, 50});
  init::kaiming_uniform(w, kKey);
  Moments m = moments(w);
  EXPECT_NEAR(m.mean, 0, 1e-3);
  EXPECT_NEAR(m.deviation, std::sqrt(2.0 / 450), 3e-4);
  EXPECT_NEAR(m.greatest, std::sqrt(6.0 / 450), 1e-4);
  EXPECT_LE(m.greatest, std::sqrt(6.0 / 450));
  EXPECT_GE(m.least, -std::sqrt(6.0 / 450));

  init::kaiming_normal(w, kKey, init::kReluGain, init::Fan::out);
  m = moments(w);
  EXPECT_NEAR(m.mean, 0, 5e-4);
  EXPECT_NEAR(m.deviation, std::sqrt(2.0 / 1800), 2e-4);
  EXPECT_GT(m.greatest, 3.5 * m.deviation);  // has tails
}

TEST(Init, XavierHasItsDeviation) {
  const Tensor w = Tensor::empty({300, 100});
  init::xavier_uniform(w, kKey, 2);
  EXPECT_NEAR(moments(w).deviation, 2 * std::sqrt(2.0 / 400), 1e-3);
  EXPECT_LE(moments(w).greatest, 2 * std::sqrt(6.0 / 400));
  init::xavier_normal(w, kKey);
  EXPECT_NEAR(moments(w).deviation, std::sqrt(2.0 / 400), 1e-3);
}

TEST(Init, TruncatedNormalStaysInsideAndFillsIt) {
  const Tensor w = Tensor::empty({20'000});
  init::truncated_normal(w, kKey, 1, 2, -1, 5);
  const Moments m = moments(w);
  EXPECT_GE(m.least, -1);
  EXPECT_LE(m.greatest, 5);
  EXPECT_LT(m.least, -0.98);
  EXPECT_GT(m.greatest, 4.8);
  // Of z in [-1, 2]: E = (phi(1) - phi(2)) / (Phi(2) - Phi(-1)) = 0.18798 / 0.81859.
  EXPECT_NEAR(m.mean, 1 + 2 * 0.22964, 0.04);
  EXPECT_THROW(init::truncated_normal(w, kKey, 0, 1, 5, 6), ArgumentError);
  EXPECT_THROW(init::truncated_normal(w, kKey, 0, 0, -1, 1), ArgumentError);
}

TEST(Init, ValuesAreAFunctionOfSeedAndName) {
  const auto values = [](std::uint64_t seed, std::string_view name) {
    const Tensor w = Tensor::empty({7});
    init::normal(w, parameter_key(seed, name), 0, 1);
    return w.to_vector();
  };
  EXPECT_EQ(values(1, "conv1.weight"), values(1, "conv1.weight"));
  EXPECT_NE(values(1, "conv1.weight"), values(2, "conv1.weight"));
  EXPECT_NE(values(1, "conv1.weight"), values(1, "conv2.weight"));
  EXPECT_NE(values(1, "conv1.weight"), values(1, "conv1.bias"));
}

// Values published with the function: another hash would be another initialisation.
TEST(Init, NamesAreHashedByFnv1a) {
  EXPECT_EQ(kernels::fnv1a(""), 0xcbf29ce484222325u);
  EXPECT_EQ(kernels::fnv1a("a"), 0xaf63dc4c8601ec8cu);
  EXPECT_EQ(kernels::fnv1a("foobar"), 0x85944171f73967e8u);
  EXPECT_EQ(kernels::fnv1a("\xff"), 0xaf64724c8602eb6eu) << "bytes have no sign";
}

TEST(Init, ValueDoesNotDependOnHowManyThereAre) {
  for (const auto fill : {+[](const Tensor& w) { init::uniform(w, kKey, 0, 1); },
                          +[](const Tensor& w) { init::normal(w, kKey, 0, 1); },
                          +[](const Tensor& w) { init::truncated_normal(w, kKey, 0, 1, -1, 1); }}) {
    const Tensor few = Tensor::empty({5}), many = Tensor::empty({11});
    fill(few);
    fill(many);
    const std::vector<double> a = few.to_vector(), b = many.to_vector();
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin()));
  }
}

TEST(Init, OrthogonalRowsOrColumnsAreOrthonormal) {
  for (const Shape& shape : {Shape{6, 2, 2, 5}, Shape{40, 3}, Shape{4, 4}}) {
    const Tensor w = Tensor::empty(shape, {DType::f64, kCpu});
    init::orthogonal(w, kKey, 3);
    const std::vector<double> v = w.to_vector();
    const std::int64_t rows = shape[0], columns = w.numel() / rows;
    const bool wide = columns >= rows;
    const std::int64_t count = wide ? rows : columns, length = wide ? columns : rows;
    const auto at = [&](std::int64_t i, std::int64_t k) {
      return v[static_cast<std::size_t>(wide ? i * columns + k : k * columns + i)];
    };
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        double dot = 0;
        for (std::int64_t k = 0; k < length; ++k) dot += at(i, k) * at(j, k);
        EXPECT_NEAR(dot, i == j ? 9 : 0, 1e-12) << shape.str();
      }
    }
  }
  EXPECT_THROW(init::orthogonal(Tensor::empty({3}), kKey), ArgumentError);
}

TEST(Init, DiracConvolutionIsTheIdentity) {
  const Tensor x = Tensor::empty({2, 5, 4, 3}), w = Tensor::empty({3, 3, 3, 3});
  init::normal(x, kKey, 0, 1);
  init::dirac(w);
  Conv2dParams same;
  same.padding[0] = same.padding[1] = 1;
  EXPECT_EQ(conv2d(x, w, {}, same).to_vector(), x.to_vector());
}

TEST(Init, DiracMayKeepTheOtherFilters) {
  const Tensor w = Tensor::empty({4, 3, 3, 2});
  init::constant(w, 7);
  init::dirac(w, true);
  const std::vector<double> v = w.to_vector();
  EXPECT_EQ(std::count(v.begin(), v.begin() + 36, 1), 2);
  EXPECT_EQ(std::count(v.begin(), v.begin() + 36, 0), 34);
  EXPECT_EQ(std::count(v.begin() + 36, v.end(), 7), 36);
  EXPECT_EQ(v[(0 * 9 + 4) * 2 + 0], 1);
  EXPECT_EQ(v[(1 * 9 + 4) * 2 + 1], 1);
}

TEST(Init, WritesLeavesOfEveryFloatingDtypeAndCountsTheWrite) {
  for (const DType dtype : test::kFloating) {
    const Tensor w = Tensor::zeros({3, 2}, {dtype, kCpu});
    require_grad(w);
    const std::uint32_t version = w.version();
    init::constant(w, 0.5);
    EXPECT_EQ(w.to_vector(), std::vector<double>(6, 0.5));
    EXPECT_NE(w.version(), version);
    EXPECT_TRUE(w.requires_grad());
  }
  EXPECT_THROW(init::constant(Tensor::zeros({2}, {DType::i64, kCpu}), 1), ArgumentError);
  init::normal(Tensor::empty({0, 3}), kKey, 0, 1);
}

TEST(Whitening, FiltersMakePatchesUncorrelatedOfUnitVariance) {
  // Neighbours and channels are correlated: a smoothed noise image with mixed channels.
  const std::int64_t side = 24, channels = 3, count = 16;
  const Tensor noise = Tensor::empty({count, side, side, channels});
  init::normal(noise, kKey, 0.2, 1);
  const Tensor images = Tensor::empty(noise.shape());
  const std::int64_t n = noise.numel();
  for (std::int64_t i = 0; i < n; ++i)
    images.data<float>()[i] = noise.data<float>()[i] + 0.7f * noise.data<float>()[(i + 1) % n] +
                              0.5f * noise.data<float>()[(i + 4) % n];

  const Tensor filters = whitening_filters(images, 2, 1e-9);
  EXPECT_EQ(filters.shape(), (Shape{24, 2, 2, 3}));
  const Tensor y = conv2d(images, filters);  // [16, 23, 23, 24]
  const std::int64_t rows = y.numel() / 24;
  std::vector<double> mean(24, 0.0);
  for (std::int64_t i = 0; i < y.numel(); ++i)
    mean[static_cast<std::size_t>(i % 24)] += y.data<float>()[i] / static_cast<double>(rows);
  for (std::int64_t a = 0; a < 24; ++a) {
    for (std::int64_t b = 0; b <= a; ++b) {
      double covariance = 0;
      for (std::int64_t i = 0; i < rows; ++i)
        covariance += (y.data<float>()[i * 24 + a] - mean[static_cast<std::size_t>(a)]) *
                      (y.data<float>()[i * 24 + b] - mean[static_cast<std::size_t>(b)]) /
                      static_cast<double>(rows);
      const double expected = a == b ? 1 : a - b == 12 ? -1 : 0;
      EXPECT_NEAR(covariance, expected, 2e-4) << a << " " << b;
    }
  }
}

TEST(Whitening, EpsBoundsFiltersOfConstantImages) {
  const Tensor images = Tensor::zeros({1, 4, 4, 1});
  for (const double v : whitening_filters(images, 2, 0.25).to_vector()) EXPECT_LE(std::abs(v), 2);
  EXPECT_THROW(whitening_filters(images, 5), ArgumentError);
  EXPECT_THROW(whitening_filters(images, 2, 0), ArgumentError);
  images.data<float>()[3] = std::nanf("");
  EXPECT_THROW(whitening_filters(images, 2), ArgumentError);
}

}  // namespace athanor::nn::init_test
