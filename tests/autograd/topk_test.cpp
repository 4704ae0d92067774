#include "autograd/topk.h"

#include <algorithm>
#include <numeric>

#include "tests/support/ops.h"

namespace athanor::topk_test {

// Values with many ties, as any dtype.
Tensor values(const Shape& shape, DType dtype) {
  const Tensor x = Tensor::empty(shape, {DType::f64, kCpu});
  for (std::int64_t i = 0; i < x.numel(); ++i)
    x.data<double>()[i] = static_cast<double>((i * 7 + i * i) % 11);
  return cast(x, dtype);
}

// A stable sort of every slice, and what the result must be.
void check(const Tensor& x, std::int64_t k, int axis, bool largest) {
  const TopK found = topk(x, k, axis, largest);
  const int along = axis < 0 ? axis + x.rank() : axis;
  Shape shape = x.shape();
  shape[along] = k;
  ASSERT_EQ(found.values.shape(), shape);
  ASSERT_EQ(found.indices.shape(), shape);
  ASSERT_EQ(found.values.dtype(), x.dtype());
  ASSERT_EQ(found.indices.dtype(), DType::i64);
  const std::vector<double> in = x.to_vector(), value = found.values.to_vector(),
                            index = found.indices.to_vector();
  std::int64_t inner = 1;
  for (int i = along + 1; i < x.rank(); ++i) inner *= x.shape()[i];
  const std::int64_t n = x.shape()[along], outer = n * inner == 0 ? 0 : x.numel() / (n * inner);
  for (std::int64_t slice = 0; slice < outer * inner; ++slice) {
    const std::int64_t before = slice / inner, column = slice % inner;
    const auto element = [&](std::int64_t i) {
      return in[static_cast<std::size_t>((before * n + i) * inner + column)];
    };
    std::vector<std::int64_t> order(static_cast<std::size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
      const double left = element(a), right = element(b);
      if (std::isnan(left) || std::isnan(right))
        return std::isnan(left) != std::isnan(right) && std::isnan(left) == largest;
      return largest ? left > right : left < right;
    });
    for (std::int64_t j = 0; j < k; ++j) {
      const auto at = static_cast<std::size_t>((before * k + j) * inner + column);
      ASSERT_EQ(index[at], static_cast<double>(order[static_cast<std::size_t>(j)])) << "place " << j;
      const double expected = element(order[static_cast<std::size_t>(j)]);
      ASSERT_TRUE(value[at] == expected || (std::isnan(value[at]) && std::isnan(expected)));
    }
  }
}

TEST(TopK, MatchesAStableSortAlongEveryAxis) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    for (const Shape& shape :
         {Shape{1}, Shape{7}, Shape{5, 33}, Shape{3, 6, 5}, Shape{2, 0, 3}, Shape{300}}) {
      for (int axis = -1; axis < shape.rank(); ++axis) {
        const std::int64_t n = axis < 0 ? shape[shape.rank() - 1] : shape[axis];
        for (const std::int64_t k : {std::int64_t{0}, std::int64_t{1}, n / 2, n}) {
          if (k > n) continue;
          for (const bool largest : {true, false}) check(values(shape, dtype), k, axis, largest);
        }
      }
    }
  }
}

TEST(TopK, NaNIsLargestAndEqualElementsKeepTheirOrder) {
  const Tensor x = Tensor::from(std::vector<float>{1, 3, NAN, 3, -INFINITY, NAN, INFINITY, -0.0f, 0}, {9});
  EXPECT_EQ(topk(x, 5).indices.to_vector(), (std::vector<double>{2, 5, 6, 1, 3}));
  EXPECT_EQ(topk(x, 5, 0, false).indices.to_vector(), (std::vector<double>{4, 7, 8, 0, 1}));
  check(x, 9, 0, true);
  check(x, 9, 0, false);
}

TEST(TopK, GradientGoesToTheElementsChosen) {
  const Tensor x = Tensor::from(std::vector<float>{1, 5, 3, 4, 4, 2}, {2, 3});
  require_grad(x);
  backward(topk(x, 2).values, Tensor::from(std::vector<float>{10, 20, 30, 40}, {2, 2}));
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{0, 10, 20, 30, 40, 0}));
}

TEST(TopK, RejectsInvalidArguments) {
  const Tensor x = Tensor::zeros({2, 3});
  EXPECT_REFUSED(topk(x, 4), "k", "[0, 3]", "1", "[2, 3]", "4");
  EXPECT_THROW(topk(x, -1), ArgumentError);
  EXPECT_THROW(topk(x, 1, 2), ArgumentError);
  EXPECT_THROW(topk(Tensor(), 1), ArgumentError);
  EXPECT_REFUSED(topk(cast(x, DType::boolean), 1), "bool");
}

}  // namespace athanor::topk_test
