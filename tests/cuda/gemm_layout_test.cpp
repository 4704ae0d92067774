#include "kernels/cuda/gemm_layout.h"

#include "kernels/conv.h"
#include "kernels/cpu/context.h"
#include "kernels/matmul.h"
#include "tests/support/cases.h"
#include "tests/support/compare.h"

namespace athanor::cuda::gemm_layout_test {

/// What a BLAS does with that layout, reading and writing memory as it says and as nothing else.
void naive_gemm(const GemmLayout& z, const Tensor& a, const Tensor& b, const Tensor& y) {
  const auto at = [](const float* from, const GemmLayout::Operand& t, std::int64_t i, std::int64_t row,
                     std::int64_t column) {
    return from[i * t.batch_stride + (t.transposed ? column * t.ld + row : row * t.ld + column)];
  };
  for (std::int64_t i = 0; i < z.batch; ++i) {
    for (std::int64_t row = 0; row < z.m; ++row) {
      for (std::int64_t column = 0; column < z.n; ++column) {
        float sum = 0;
        for (std::int64_t k = 0; k < z.k; ++k)
          sum += at(a.data<float>(), z.a, i, row, k) * at(b.data<float>(), z.b, i, k, column);
        y.data<float>()[i * z.m * z.n + row * z.n + column] = sum;
      }
    }
  }
}

Tensor numbers(const Shape& shape, std::uint64_t seed) {
  return test::filled({shape}, DType::f32, {seed});
}
Tensor transposed(const Tensor& x) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  const int last = x.rank() - 1;
  std::swap(shape[last], shape[last - 1]);
  std::swap(strides[last], strides[last - 1]);
  return x.view_as_strided(shape, strides, 0);
}
/// Rows with `gap` unused elements between them.
Tensor gapped(const Shape& shape, std::int64_t gap, std::uint64_t seed) {
  Shape wide = shape;
  wide[shape.rank() - 1] += gap;
  const Tensor x = numbers(wide, seed);
  return x.view_as_strided(shape, x.strides(), 0);
}
Tensor expanded(const Tensor& x, const Shape& shape) {
  Strides strides = shape;
  for (int axis = 0; axis < shape.rank(); ++axis)
    strides[axis] = x.shape()[axis] == 1 ? 0 : x.strides()[axis];
  return x.view_as_strided(shape, strides, 0);
}

struct Case {
  const char* name;
  Tensor a, b;
  Shape y;
  GemmLayout expected{};
};

TEST(GemmLayout, ComputesWhatMatmulComputes) {
  const Case cases[] = {
      {"plain", numbers({3, 5}, 1), numbers({5, 4}, 2), {3, 4}, {3, 4, 5, 1, {false, 5, 0}, {false, 4, 0}}},
      {"linear",
       numbers({3, 5}, 1),
       transposed(numbers({4, 5}, 2)),
       {3, 4},
       {3, 4, 5, 1, {false, 5, 0}, {true, 5, 0}}},
      {"weight gradient",
       transposed(numbers({7, 3}, 1)),
       numbers({7, 4}, 2),
       {3, 4},
       {3, 4, 7, 1, {true, 3, 0}, {false, 4, 0}}},
      {"gaps",
       gapped({3, 5}, 2, 1),
       transposed(gapped({4, 5}, 3, 2)),
       {3, 4},
       {3, 4, 5, 1, {false, 7, 0}, {true, 8, 0}}},
      {"batch",
       numbers({2, 3, 5}, 1),
       numbers({2, 5, 4}, 2),
       {2, 3, 4},
       {3, 4, 5, 2, {false, 5, 15}, {false, 4, 20}}},
      {"two batch axes",
       numbers({2, 3, 3, 5}, 1),
       transposed(numbers({2, 3, 4, 5}, 2)),
       {2, 3, 3, 4},
       {3, 4, 5, 6, {false, 5, 15}, {true, 5, 20}}},
      {"one b for all",
       numbers({2, 3, 5}, 1),
       numbers({1, 5, 4}, 2),
       {2, 3, 4},
       {6, 4, 5, 1, {false, 5, 0}, {false, 4, 0}}},
      {"one b, expanded",
       numbers({2, 6, 3, 5}, 1),
       expanded(numbers({1, 1, 5, 4}, 2), {2, 6, 5, 4}),
       {2, 6, 3, 4},
       {36, 4, 5, 1, {false, 5, 0}, {false, 4, 0}}},
      {"one a for all",
       numbers({1, 3, 5}, 1),
       numbers({2, 5, 4}, 2),
       {2, 3, 4},
       {3, 4, 5, 2, {false, 5, 0}, {false, 4, 20}}},
      {"one b for rows of a transposed a",
       transposed(numbers({2, 5, 3}, 1)),
       numbers({1, 5, 4}, 2),
       {2, 3, 4},
       {3, 4, 5, 2, {true, 3, 15}, {false, 4, 0}}},
      {"summed over the batch",
       transposed(numbers({6, 7, 3}, 1)),
       numbers({6, 7, 4}, 2),
       {1, 3, 4},
       {3, 4, 42, 1, {true, 3, 0}, {false, 4, 0}}},
      {"summed inside a batch",
       transposed(numbers({2, 6, 7, 3}, 1)),
       numbers({2, 6, 7, 4}, 2),
       {2, 1, 3, 4},
       {3, 4, 42, 2, {true, 3, 126}, {false, 4, 168}}},
      {"row times matrices",
       numbers({2, 1, 5}, 1),
       numbers({1, 5, 4}, 2),
       {2, 1, 4},
       {2, 4, 5, 1, {false, 5, 0}, {false, 4, 0}}},
      {"padded rows, one each",
       gapped({2, 1, 5}, 3, 1),
       numbers({1, 5, 4}, 2),
       {2, 1, 4},
       {2, 4, 5, 1, {false, 8, 0}, {false, 4, 0}}},
      {"dot", numbers({1, 5}, 1), numbers({5, 1}, 2), {1, 1}, {1, 1, 5, 1, {false, 5, 0}, {false, 1, 0}}},
      {"outer", numbers({3, 1}, 1), numbers({1, 4}, 2), {3, 4}, {3, 4, 1, 1, {false, 1, 0}, {false, 4, 0}}},
      {"strided column",
       transposed(gapped({5, 1}, 2, 1)),
       numbers({5, 4}, 2),
       {1, 4},
       {1, 4, 5, 1, {true, 3, 0}, {false, 4, 0}}},
      {"sum of outer products",
       numbers({6, 3, 1}, 1),
       numbers({6, 1, 4}, 2),
       {1, 3, 4},
       {3, 4, 6, 1, {true, 3, 0}, {false, 4, 0}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const Tensor y = Tensor::empty(c.y), expected = Tensor::empty(c.y);
    const std::optional<GemmLayout> layout = gemm_layout(c.a, c.b, y);
    ASSERT_TRUE(layout);
    EXPECT_EQ(*layout, c.expected);
    naive_gemm(*layout, c.a, c.b, y);
    kernels::matmul(cpu_context(), MatmulImpl::reference, c.a, c.b, {}, Activation::none, expected,
                    Write::overwrite);
    EXPECT_TRUE(test::close(y, expected, 1e-5));
  }
}

TEST(GemmLayout, RejectsLayoutsThatNoBlasCanRead) {
  const auto refused = [](const Tensor& a, const Tensor& b, const Shape& y) {
    return !gemm_layout(a, b, Tensor::empty(y));
  };
  const Tensor b = numbers({5, 4}, 1);
  // Neither rows nor columns are dense.
  EXPECT_TRUE(refused(numbers({6, 10}, 2).view_as_strided({3, 5}, {20, 2}, 0), b, {3, 4}));
  // Rows that share memory.
  EXPECT_TRUE(refused(numbers({1, 5}, 2).view_as_strided({3, 5}, {0, 1}, 0), b, {3, 4}));
  EXPECT_TRUE(refused(numbers({20}, 2).view_as_strided({3, 5}, {2, 1}, 0), b, {3, 4}));
  // Leading axes without one stride.
  EXPECT_TRUE(refused(numbers({2, 1, 3, 5}, 2), numbers({1, 6, 5, 4}, 3), {2, 6, 3, 4}));
  // A sum over an axis that k does not continue into.
  EXPECT_TRUE(refused(numbers({6, 3, 7}, 2), numbers({6, 7, 4}, 3), {1, 3, 4}));
}

TEST(GemmLayout, RandomLayoutsAgreeOrAreRefused) {
  int understood = 0;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
    const auto below = [&](std::uint64_t n) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      return static_cast<std::int64_t>((state >> 33) % n);
    };
    const int leading = static_cast<int>(below(3));
    const std::int64_t m = 1 + below(3), n = 1 + below(3), k = 1 + below(3);
    Shape a, b, y;
    for (int i = 0; i < leading; ++i) {
      const std::int64_t size = 1 + below(3), who = below(4);
      a.push_back(who == 1 ? 1 : size), b.push_back(who == 2 ? 1 : size);
      y.push_back(below(3) == 0 ? 1 : size);
    }
    const bool a_turned = below(2), b_turned = below(2);
    a.push_back(a_turned ? k : m), a.push_back(a_turned ? m : k);
    b.push_back(b_turned ? n : k), b.push_back(b_turned ? k : n);
    y.push_back(m), y.push_back(n);
    Tensor left = gapped(a, below(2) * below(3), 1), right = gapped(b, below(2) * below(3), 2);
    if (a_turned) left = transposed(left);
    if (b_turned) right = transposed(right);

    const Tensor out = Tensor::empty(y), expected = Tensor::empty(y);
    const std::optional<GemmLayout> layout = gemm_layout(left, right, out);
    if (!layout) continue;
    ++understood;
    naive_gemm(*layout, left, right, out);
    kernels::matmul(cpu_context(), MatmulImpl::reference, left, right, {}, Activation::none, expected,
                    Write::overwrite);
    ASSERT_TRUE(test::close(out, expected, 1e-5)) << seed << " " << left << right << out;
  }
  EXPECT_GT(understood, 1000);
}

// The three passes of a 1 x 1 convolution, which are products where images are NHWC.
TEST(GemmLayout, PointwiseConvolutionsAreProducts) {
  const std::int64_t n = 2, h = 3, w = 5, c = 7, k = 4, pixels = n * h * w;
  const Tensor x = numbers({n, h, w, c}, 1), filter = numbers({k, 1, 1, c}, 2), dy = numbers({n, h, w, k}, 3);
  const Conv2dParams params{.impl = ConvImpl::reference};
  const auto expect = [](const Tensor& got, const Tensor& expected) {
    EXPECT_TRUE(test::close(got, expected, 1e-5));
  };
  const Tensor y = empty_like(dy), expected_y = empty_like(dy);
  naive_gemm(pointwise_layout(ConvPass::forward, pixels, c, k), x, filter, y);
  kernels::conv2d_forward(cpu_context(), params, x, filter, {}, expected_y);
  expect(y, expected_y);
  const Tensor dx = empty_like(x), expected_dx = empty_like(x);
  naive_gemm(pointwise_layout(ConvPass::backward_data, pixels, c, k), dy, filter, dx);
  kernels::conv2d_backward_data(cpu_context(), params, dy, filter, expected_dx);
  expect(dx, expected_dx);
  const Tensor dw = empty_like(filter), expected_dw = empty_like(filter);
  naive_gemm(pointwise_layout(ConvPass::backward_weights, pixels, c, k), dy, x, dw);
  kernels::conv2d_backward_weights(cpu_context(), params, x, dy, expected_dw, Write::overwrite, {},
                                   Write::overwrite);
  expect(dw, expected_dw);
}

}  // namespace athanor::cuda::gemm_layout_test
