#include "kernels/matmul.h"

#include "kernels/cpu/context.h"
#include "kernels/implementations.h"
#include "tests/support/exact_values.h"
#include "tests/support/ops.h"

namespace athanor::matmul_test {

using test::close;
using test::epsilon_of;
using test::same_bits;
using test::values;

constexpr MatmulImpl kImpls[] = {MatmulImpl::automatic, MatmulImpl::reference};

Tensor swapped(const Tensor& x) {  // the transpose of a dense [..., N, M] as a view [..., M, N]
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[x.rank() - 1], shape[x.rank() - 2]);
  std::swap(strides[x.rank() - 1], strides[x.rank() - 2]);
  return x.view_as_strided(shape, strides, 0);
}

// The definition, for a [B, M, K] and b [B, K, N] already of one batch size.
std::vector<double> product(const std::vector<double>& a, const std::vector<double>& b, std::int64_t batch,
                            std::int64_t m, std::int64_t k, std::int64_t n) {
  std::vector<double> y(static_cast<std::size_t>(batch * m * n), 0.0);
  for (std::int64_t z = 0; z < batch; ++z)
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t l = 0; l < k; ++l)
        for (std::int64_t j = 0; j < n; ++j)
          y[static_cast<std::size_t>((z * m + i) * n + j)] +=
              a[static_cast<std::size_t>((z * m + i) * k + l)] *
              b[static_cast<std::size_t>((z * k + l) * n + j)];
  return y;
}

// The same for operands of any shapes: every element of the result by the definition.
std::vector<double> broadcast_product(const Tensor& a, const Tensor& b) {
  const auto at = [](const Tensor& x, const std::vector<double>& values,
                     const std::vector<std::int64_t>& batch, std::int64_t row, std::int64_t column) {
    std::int64_t index = 0;
    const int leading = x.rank() - 2, missing = static_cast<int>(batch.size()) - leading;
    for (int i = 0; i < leading; ++i)
      index = index * x.shape()[i] + (x.shape()[i] == 1 ? 0 : batch[static_cast<std::size_t>(i + missing)]);
    return values[static_cast<std::size_t>((index * x.dim(-2) + row) * x.dim(-1) + column)];
  };
  const Tensor left = a.rank() == 1 ? a.view_as_strided({1, a.dim(0)}, {0, 1}, 0) : a,
               right = b.rank() == 1 ? b.view_as_strided({b.dim(0), 1}, {1, 0}, 0) : b;
  const std::vector<double> av = left.to_vector(), bv = right.to_vector();
  const int rank = std::max(left.rank(), right.rank());
  std::vector<std::int64_t> sizes, batch(static_cast<std::size_t>(rank - 2), 0);
  for (int i = -rank; i < -2; ++i)
    sizes.push_back(std::max(i >= -left.rank() ? left.dim(i) : 1, i >= -right.rank() ? right.dim(i) : 1));
  std::vector<double> y;
  while (true) {
    for (std::int64_t i = 0; i < left.dim(-2); ++i)
      for (std::int64_t j = 0; j < right.dim(-1); ++j) {
        double sum = 0;
        for (std::int64_t l = 0; l < left.dim(-1); ++l)
          sum += at(left, av, batch, i, l) * at(right, bv, batch, l, j);
        y.push_back(sum);
      }
    std::size_t axis = sizes.size();
    while (axis > 0 && ++batch[axis - 1] == sizes[axis - 1]) batch[--axis] = 0;
    if (axis == 0) return y;
  }
}

// Sums of k products of numbers below 1, in f32, then one rounding to the dtype.
double tolerance(DType dtype, std::int64_t k) {
  const double sums = dtype == DType::f64 ? epsilon_of(DType::f64) : epsilon_of(DType::f32);
  return static_cast<double>(k + 1) * sums + epsilon_of(dtype);
}

TEST(Matmul, TwoByTwoByHand) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2});
  const Tensor b = Tensor::from(std::vector<float>{5, 6, 7, 8}, {2, 2});
  for (const MatmulImpl impl : kImpls)
    EXPECT_EQ(matmul(a, b, impl).to_vector(), (std::vector<double>{19, 22, 43, 50}));
}

TEST(Matmul, MatchesDoubleReferenceForEveryTypeLayoutAndSize) {
  const std::int64_t sizes[][3] = {{1, 1, 1},    {1, 7, 5},     {5, 1, 3},    {3, 9, 1},
                                   {17, 33, 20}, {64, 120, 84}, {130, 65, 70}};
  for (const DType dtype : test::kFloating) {
    for (const auto& [m, k, n] : sizes) {
      for (int layout = 0; layout < 4; ++layout) {
        const Tensor a = layout & 1 ? swapped(values({k, m}, dtype, 1)) : values({m, k}, dtype, 1);
        const Tensor b = layout & 2 ? swapped(values({n, k}, dtype, 2)) : values({k, n}, dtype, 2);
        const std::vector<double> expected = product(a.to_vector(), b.to_vector(), 1, m, k, n);
        for (const MatmulImpl impl : kImpls) {
          EXPECT_TRUE(close(matmul(a, b, impl), expected, tolerance(dtype, k)))
              << name_of(dtype) << " " << m << "x" << k << "x" << n << " layout " << layout << " impl "
              << static_cast<int>(impl);
        }
      }
    }
  }
}

TEST(Matmul, BroadcastsLeadingAxesAndDropsThoseOfVectors) {
  struct Case {
    Shape a, b, y;
  };
  const Case cases[] = {{{3}, {3}, {}},
                        {{3}, {3, 4}, {4}},
                        {{2, 3}, {3}, {2}},
                        {{5, 2, 3}, {3}, {5, 2}},
                        {{3}, {5, 3, 4}, {5, 4}},
                        {{5, 2, 3}, {3, 4}, {5, 2, 4}},
                        {{2, 3}, {5, 3, 4}, {5, 2, 4}},
                        {{2, 1, 2, 3}, {3, 3, 4}, {2, 3, 2, 4}},
                        {{1, 3, 2, 3}, {2, 1, 3, 4}, {2, 3, 2, 4}}};
  for (const DType dtype : test::kFloating) {
    for (const auto& [a_shape, b_shape, y_shape] : cases) {
      const Tensor a = values(a_shape, dtype, 3), b = values(b_shape, dtype, 4);
      for (const MatmulImpl impl : kImpls) {
        const Tensor y = matmul(a, b, impl);
        EXPECT_EQ(y.shape(), y_shape);
        EXPECT_TRUE(close(y, broadcast_product(a, b), tolerance(dtype, 3))) << a_shape.str() << b_shape.str();
      }
    }
  }
}

TEST(Matmul, EmptySizesGiveZerosOrNothing) {
  for (const MatmulImpl impl : kImpls) {
    EXPECT_EQ(matmul(values({0, 3}, DType::f32, 1), values({3, 2}, DType::f32, 1), impl).shape(),
              (Shape{0, 2}));
    EXPECT_EQ(matmul(values({2, 0}, DType::f32, 1), values({0, 2}, DType::f32, 1), impl).to_vector(),
              std::vector<double>(4, 0.0));
    const Tensor bias = Tensor::from(std::vector<float>{1, -2}, {2});
    EXPECT_EQ(
        linear(values({3, 0}, DType::f32, 1), values({2, 0}, DType::f32, 1), bias, Activation::relu, impl)
            .to_vector(),
        (std::vector<double>{1, 0, 1, 0, 1, 0}));
  }
}

TEST(Matmul, StridedOperandsNeedNoDenseCopy) {
  // Neither stride is 1: every second column of a wider matrix.
  const Tensor wide = values({6, 14}, DType::f32, 5), b = values({7, 3}, DType::f32, 6);
  const Tensor a = wide.view_as_strided({3, 7}, {28, 2}, 0);
  const std::vector<double> expected = product(a.to_vector(), b.to_vector(), 1, 3, 7, 3);
  for (const MatmulImpl impl : kImpls) EXPECT_TRUE(close(matmul(a, b, impl), expected, 1e-6));
}

// One row and one column, summed over a batch: the products fold into one whose factors are vectors.
TEST(Matmul, GradientOfAScalarSumsOverItsBatch) {
  for (const std::int64_t n : {16, 100'000}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const MatmulImpl impl : kImpls) {
        const Tensor a = require_grad(values({1, 1}, dtype, 1)),
                     b = require_grad(values({2, 1, n}, dtype, 2));
        const Tensor dy = values({2, 1, n}, dtype, 3);
        backward(matmul(a, b, impl), dy);
        double expected = 0;
        const std::vector<double> left = b.to_vector(), right = dy.to_vector();
        for (std::size_t i = 0; i < left.size(); ++i) expected += left[i] * right[i];
        EXPECT_NEAR(grad_of(a).item(), expected, epsilon_of(dtype) * std::abs(expected))
            << name_of(dtype) << " n " << n << " impl " << static_cast<int>(impl);
      }
    }
  }
}

TEST(Matmul, FactorsMayRepeatTheirElements) {
  const Tensor row = values({6}, DType::f32, 1), b = values({6, 5}, DType::f32, 2);
  const Tensor rows = row.view_as_strided({4, 6}, {0, 1}, 0),
               columns = row.view_as_strided({6, 5}, {1, 0}, 0);
  const Tensor a = values({4, 6}, DType::f32, 3), overlapping = b.view_as_strided({4, 6}, {1, 3}, 0);
  for (const MatmulImpl impl : kImpls) {
    EXPECT_TRUE(close(matmul(rows, b, impl), product(rows.to_vector(), b.to_vector(), 1, 4, 6, 5), 1e-6));
    EXPECT_TRUE(
        close(matmul(a, columns, impl), product(a.to_vector(), columns.to_vector(), 1, 4, 6, 5), 1e-6));
    EXPECT_TRUE(close(matmul(overlapping, b, impl),
                      product(overlapping.to_vector(), b.to_vector(), 1, 4, 6, 5), 1e-6));
  }
}

TEST(Linear, WithoutInputsIsItsBias) {
  for (const MatmulImpl impl : kImpls) {
    const Tensor x = require_grad(Tensor::zeros({3, 2, 0})), w = require_grad(Tensor::zeros({2, 0}));
    const Tensor bias = require_grad(Tensor::from(std::vector<float>{1, -2}, {2}));
    const Tensor y = linear(x, w, bias, Activation::none, impl);
    EXPECT_EQ(y.shape(), (Shape{3, 2, 2}));
    EXPECT_EQ(y.to_vector(), (std::vector<double>{1, -2, 1, -2, 1, -2, 1, -2, 1, -2, 1, -2}));
    backward(y, Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {3, 2, 2}));
    EXPECT_EQ(grad_of(bias).to_vector(), (std::vector<double>{36, 42}));
    EXPECT_EQ(grad_of(w).shape(), w.shape());
    EXPECT_EQ(grad_of(x).shape(), x.shape());
  }
}

TEST(Linear, MatchesDoubleReferenceWithBiasAndActivation) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t m : {1, 5, 64}) {
      const std::int64_t k = 50, n = 21;
      const Tensor x = values({m, k}, dtype, 1), w = values({n, k}, dtype, 2), bias = values({n}, dtype, 3);
      std::vector<double> expected = product(x.to_vector(), swapped(w).to_vector(), 1, m, k, n);
      for (std::size_t i = 0; i < expected.size(); ++i)
        expected[i] = std::max(0.0, expected[i] + bias.to_vector()[i % static_cast<std::size_t>(n)]);
      for (const MatmulImpl impl : kImpls)
        EXPECT_TRUE(close(linear(x, w, bias, Activation::relu, impl), expected, tolerance(dtype, k)))
            << name_of(dtype) << " impl " << static_cast<int>(impl);
    }
  }
}

// oneDNN's own relu makes 0 of NaN, and a diverged run would look well.
TEST(Linear, NaNGoesThroughRelu) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t k : {4, 300}) {
      const Tensor x = values({8, k}, dtype, 1), w = values({16, k}, dtype, 2),
                   bias = cast(Tensor::from(std::vector<float>{NAN}, {1}), dtype);
      for (const MatmulImpl impl : kImpls) {
        const std::vector<double> y =
            linear(x, w, contiguous(expand(bias, {16})), Activation::relu, impl).to_vector();
        EXPECT_TRUE(std::all_of(y.begin(), y.end(), [](double value) { return std::isnan(value); }))
            << name_of(dtype) << " impl " << static_cast<int>(impl);
      }
    }
  }
}

TEST(Linear, GeluAndSiluMatchTheirFormulas) {
  const Tensor x = values({5, 7}, DType::f64, 1), w = values({6, 7}, DType::f64, 2),
               bias = values({6}, DType::f64, 3);
  const std::vector<double> z = linear(x, w, bias).to_vector();
  for (const Activation activation : {Activation::gelu, Activation::silu}) {
    std::vector<double> expected = z;
    for (double& value : expected)
      value *= activation == Activation::gelu ? 0.5 * (1 + std::erf(value / std::sqrt(2.0)))
                                              : 1 / (1 + std::exp(-value));
    const Tensor inputs[] = {require_grad(x), require_grad(w), require_grad(bias)};
    for (const MatmulImpl impl : kImpls) {
      EXPECT_TRUE(close(linear(x, w, bias, activation, impl), expected, 1e-14));
      gradcheck([&](std::span<const Tensor> in) { return linear(in[0], in[1], in[2], activation, impl); },
                inputs);
      // The kernels fuse them, too.
      const Tensor y = Tensor::empty({5, 6}, {DType::f64});
      kernels::matmul(cpu_context(), impl, x.detach(), swapped(w.detach()), bias, activation, y,
                      Write::overwrite);
      EXPECT_TRUE(close(y, expected, 1e-14));
    }
  }
}

TEST(Linear, WritesAndAddsIntoTheGradientSlice) {
  const Tensor x = values({6, 4}, DType::f32, 1), w = values({5, 4}, DType::f32, 2),
               bias = values({5}, DType::f32, 3);
  const Tensor seed = values({6, 5}, DType::f32, 4);
  require_grad(w), require_grad(bias);
  backward(linear(x, w, bias), seed);
  const std::vector<double> dw = grad_of(w).to_vector(), db = grad_of(bias).to_vector();

  const Tensor w_slice = Tensor::empty({5, 4}), b_slice = Tensor::empty({5});
  kernels::fill(cpu_context(), w_slice, 99), kernels::fill(cpu_context(), b_slice, 99);
  leaf_of(w).bind(w_slice), leaf_of(bias).bind(b_slice);
  for (const double times : {1.0, 2.0}) {
    backward(linear(x, w, bias), seed);
    for (std::size_t i = 0; i < dw.size(); ++i) EXPECT_EQ(w_slice.to_vector()[i], times * dw[i]);
    for (std::size_t i = 0; i < db.size(); ++i) EXPECT_EQ(b_slice.to_vector()[i], times * db[i]);
  }
}

TEST(Linear, HalfTypesMayCollectTheirGradientInF32) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor x = values({40, 12}, dtype, 1), w = require_grad(values({5, 12}, dtype, 2));
    const Tensor seed = values({40, 5}, dtype, 4), slice = Tensor::empty({5, 12});
    leaf_of(w).bind(slice);
    backward(linear(x, w), seed);
    const std::vector<double> expected = product(swapped(seed).to_vector(), x.to_vector(), 1, 5, 40, 12);
    EXPECT_EQ(slice.to_vector(), expected);  // exact: sums of multiples of 1/64 below 40
  }
}

TEST(ColumnSums, AddEveryRowInAnyType) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t columns : {1, 5, 16, 17}) {
      for (const std::int64_t rows : {0, 1, 3, 1000, 1039, 1040, 2310}) {
        SCOPED_TRACE(fmt::format("{} [{}, {}]", dtype, rows, columns));
        const Tensor x = values({rows, columns}, dtype, 1), sums = Tensor::zeros({columns}, {dtype});
        std::vector<double> expected(static_cast<std::size_t>(columns), 0.0);
        const std::vector<double> xv = x.to_vector();
        for (std::size_t i = 0; i < xv.size(); ++i) expected[i % expected.size()] += xv[i];
        kernels::column_sums(cpu_context(), x, sums, Write::overwrite);
        EXPECT_TRUE(close(sums, expected, epsilon_of(dtype)));
        kernels::column_sums(cpu_context(), x, sums, Write::accumulate);
        for (double& sum : expected) sum *= 2;
        EXPECT_TRUE(close(sums, expected, 2 * epsilon_of(dtype)));
      }
    }
  }
}

TEST(Matmul, SameBitsEveryRunAndNoPrimitiveAfterWarmUp) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x = values({64, 400}, dtype, 1), w = require_grad(values({120, 400}, dtype, 2));
    const Tensor seed = values({64, 120}, dtype, 3);
    const auto step = [&] {
      zero_grad(w);
      const Tensor y = linear(x, w);
      backward(y, seed);
      return y.detach();
    };
    const Tensor first = step();
    const Tensor gradient = grad_of(w).detach();
    const std::int64_t before = primitives_created();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(same_bits(step(), first));
      EXPECT_TRUE(same_bits(grad_of(w), gradient));
    }
    EXPECT_EQ(primitives_created(), before);
  }
}

TEST(Matmul, MistakesAreNamed) {
  const Tensor a = values({2, 3}, DType::f32, 1);
  EXPECT_THROW(matmul(a, a), ArgumentError);
  EXPECT_THROW(matmul(a, values({3, 2}, DType::f64, 1)), ArgumentError);
  EXPECT_THROW(matmul(a, values({}, DType::f32, 1)), ArgumentError);
  EXPECT_THROW(matmul(values({2, 2, 3}, DType::f32, 1), values({3, 3, 2}, DType::f32, 1)), ArgumentError);
  EXPECT_THROW(linear(a, values({4, 2}, DType::f32, 1)), ArgumentError);
  EXPECT_THROW(linear(a, values({4, 3}, DType::f32, 1), values({3}, DType::f32, 1)), ArgumentError);
}

}  // namespace athanor::matmul_test
