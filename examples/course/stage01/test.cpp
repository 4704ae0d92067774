#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

#include "tensor.h"

namespace {

using namespace engine;
using Values = std::vector<float>;

/// 0, 1, 2 and so on.
Tensor counting(const Shape& shape) {
  Values values(static_cast<std::size_t>(numel(shape)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  return Tensor(shape, values);
}

TEST(Shapes, CountAndStride) {
  EXPECT_EQ(numel(Shape{}), 1) << "a product of no factors is 1: a tensor of shape {} is one number";
  EXPECT_EQ(numel({2, 3, 4}), 24);
  EXPECT_EQ(numel({2, 0, 4}), 0);
  EXPECT_EQ(Tensor().shape(), (Shape{0})) << "Tensor() has no elements: shape {0}";
  EXPECT_EQ(Tensor().numel(), 0);
  const Tensor x({2, 3, 4});
  EXPECT_NE(x.strides(), (Shape{1, 2, 6})) << "this is column-major: the last axis has stride 1";
  EXPECT_NE(x.strides(), (Shape{2, 3, 4})) << "a stride is the product of the sizes behind it";
  EXPECT_EQ(x.strides(), (Shape{12, 4, 1}));
  EXPECT_EQ(x.values(), Values(24, 0.0f)) << "a new tensor holds zeros";
  EXPECT_EQ(Tensor({2, 2}, {1, 2, 3, 4}).values(), (Values{1, 2, 3, 4}));
  EXPECT_EQ(Tensor({}, {5}).values(), (Values{5})) << "shape {} has one element";
  EXPECT_THROW(Tensor({2, 3}, {1, 2, 3, 4, 5}), std::invalid_argument) << "5 values do not fill 2 x 3";
  EXPECT_THROW(Tensor(Shape{2, -1}), std::invalid_argument) << "a size cannot be negative";
}

TEST(Elements, AreFoundByStrides) {
  const Tensor x = counting({2, 3, 4});
  EXPECT_EQ(x.at({0, 0, 0}), 0);
  EXPECT_EQ(x.at({1, 2, 3}), 23) << "the last element: 1 * 12 + 2 * 4 + 3 * 1";
  EXPECT_EQ(x.at({1, 0, 2}), 14);
  x.at({0, 1, 1}) = -7;
  EXPECT_EQ(x.values()[5], -7) << "at() returns a reference: writing through it changes the tensor";
  EXPECT_THROW(x.at({0, 3, 0}), std::invalid_argument) << "index 3 on an axis of size 3 is outside";
  EXPECT_THROW(x.at({0, -1, 0}), std::invalid_argument) << "a negative index is outside";
  EXPECT_THROW(x.at({0, 0}), std::invalid_argument) << "an index needs an entry for each axis";
  EXPECT_EQ(Tensor({1, 1}, {3}).item(), 3) << "item() is for one element, of any rank";
  EXPECT_EQ(Tensor({}, {4}).item(), 4);
  EXPECT_EQ(Tensor({2}, {5, 6}).narrow(0, 1, 1).item(), 6) << "item() of a view: its offset counts, too";
  EXPECT_THROW(Tensor({2}).item(), std::invalid_argument) << "item() of two elements: which?";
}

TEST(Views, TransposeMovesNoNumber) {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = x.transpose(0, 2);
  EXPECT_EQ(y.shape(), (Shape{4, 3, 2}));
  EXPECT_NE(y.strides(), (Shape{6, 2, 1})) << "transpose() copied the numbers: it must exchange two strides";
  EXPECT_NE(y.strides(), (Shape{12, 4, 1})) << "only the sizes were exchanged: the strides go with them";
  EXPECT_EQ(y.strides(), (Shape{1, 4, 12}));
  EXPECT_TRUE(y.shares_memory_with(x)) << "a view shares the memory";
  EXPECT_EQ(y.at({3, 2, 1}), 23) << "element (1, 2, 3) of the original";
  y.at({3, 0, 1}) = -1;
  EXPECT_EQ(x.at({1, 0, 3}), -1) << "writing through a view changes what it is a view of";
  EXPECT_THROW(x.transpose(0, 3), std::invalid_argument) << "there is no axis 3";
  EXPECT_THROW(x.transpose(-1, 0), std::invalid_argument) << "axes count from 0: there is no axis -1";
}

TEST(Views, NarrowMovesTheOffset) {
  const Tensor x = counting({4, 5});
  const Tensor rows = x.narrow(0, 1, 2);
  EXPECT_EQ(rows.shape(), (Shape{2, 5}));
  EXPECT_EQ(rows.strides(), (Shape{5, 1})) << "narrow() leaves the strides: rows are as far apart as before";
  EXPECT_TRUE(rows.shares_memory_with(x));
  ASSERT_NE(rows.at({0, 0}), 1)
      << "the offset counts numbers in memory, not indices of the axis: begin * stride";
  EXPECT_EQ(rows.values(), (Values{5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(*rows.data(), 5) << "data() points to the first element of the view";
  const Tensor inner = x.transpose(0, 1).narrow(0, 2, 3).narrow(1, 1, 2);  // columns 2.., then rows 1..
  ASSERT_NE(inner.at({0, 0}), 5) << "the offset of the view that was narrowed is lost: offsets add up";
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t j = 0; j < 2; ++j)
      EXPECT_EQ(inner.at({i, j}), static_cast<float>(7 + i + 5 * j))
          << "element (" << i << ", " << j << ") of three columns from 2, two rows from 1";
  EXPECT_EQ(x.narrow(1, 5, 0).numel(), 0) << "no elements, at the end of an axis, are a view, too";
  EXPECT_THROW(x.narrow(0, 3, 2), std::invalid_argument) << "rows 3 and 4 of four: 4 is outside";
  EXPECT_THROW(x.narrow(0, -1, 2), std::invalid_argument);
  EXPECT_THROW(x.narrow(0, 2, -1), std::invalid_argument) << "a view cannot have -1 elements";
  EXPECT_THROW(x.narrow(0, 1, std::numeric_limits<std::int64_t>::max()), std::invalid_argument)
      << "begin + size overflows: compare begin with shape[axis] - size";
  EXPECT_THROW(x.narrow(2, 0, 0), std::invalid_argument) << "a matrix has no axis 2: check the axis first";
  EXPECT_THROW(x.narrow(-1, 0, 0), std::invalid_argument) << "axes count from 0: there is no axis -1";
}

TEST(Views, ExpandRepeatsWithStrideZero) {
  const Tensor x = counting({3, 1, 2});
  const Tensor y = x.expand({3, 4, 2});
  EXPECT_EQ(y.shape(), (Shape{3, 4, 2}));
  EXPECT_TRUE(y.shares_memory_with(x)) << "expand() is a view: it copies nothing";
  ASSERT_NE(y.strides()[1], 2)
      << "with its old stride, a repeated axis reads the next row, and beyond the end of memory";
  EXPECT_EQ(y.strides(), (Shape{2, 0, 1})) << "an axis that repeats has stride 0";
  EXPECT_EQ(y.at({2, 3, 1}), 5);
  const Tensor row = counting({2}).expand({3, 2});
  EXPECT_EQ(row.strides(), (Shape{0, 1}))
      << "shapes are aligned at the last axis: a missing axis comes before, with stride 0";
  EXPECT_EQ(row.values(), (Values{0, 1, 0, 1, 0, 1}))
      << "shape and strides are right, so the walk is not: a full index goes back to 0, and its place by "
         "size * stride";
  EXPECT_EQ(Tensor({}, {7}).expand({2, 2}).values(), Values(4, 7.0f))
      << "a single number repeats on all axes";
  EXPECT_EQ(x.narrow(2, 0, 1).expand({3, 1, 2}).values(), (Values{0, 0, 2, 2, 4, 4}))
      << "other axes keep their strides";
  EXPECT_FALSE(counting({1, 3}).expand({2, 3}).is_contiguous())
      << "one row read twice is not two rows in memory";
  EXPECT_THROW(counting({3}).expand({6}), std::invalid_argument) << "only an axis of size 1 repeats";
  EXPECT_THROW(counting({2, 3}).expand({3}), std::invalid_argument) << "expand() cannot take an axis away";
  EXPECT_THROW(counting({3}).expand({1}), std::invalid_argument) << "expand() cannot make an axis smaller";
}

TEST(Views, KnowWhetherTheyAreContiguous) {
  EXPECT_TRUE(counting({2, 3, 4}).is_contiguous());
  EXPECT_TRUE(Tensor({}, {1}).is_contiguous());
  EXPECT_FALSE(counting({2, 3}).transpose(0, 1).is_contiguous())
      << "a transposed matrix is not in row-major order";
  EXPECT_TRUE(counting({4, 5}).narrow(0, 1, 2).is_contiguous())
      << "rows 1 and 2 are adjacent: the offset does not matter";
  EXPECT_FALSE(counting({4, 5}).narrow(1, 0, 2).is_contiguous()) << "two columns of five leave gaps";
  EXPECT_TRUE(counting({1, 6}).transpose(0, 1).is_contiguous())
      << "the stride of an axis of size 1 is never used";
  EXPECT_TRUE(counting({4, 5}).narrow(1, 2, 1).narrow(0, 3, 1).is_contiguous())
      << "one element has no neighbour";
}

TEST(Reshape, IsAViewOnlyWhereMemoryIsInOrder) {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = x.reshape({6, -1});
  EXPECT_EQ(y.shape(), (Shape{6, 4})) << "-1 stands for 24 / 6";
  EXPECT_EQ(y.strides(), (Shape{4, 1}));
  EXPECT_TRUE(y.shares_memory_with(x)) << "a contiguous tensor needs no copy";
  EXPECT_EQ(x.narrow(0, 1, 1).reshape({12}).at({0}), 12) << "the offset of the view is lost";
  const Tensor t = counting({2, 3}).transpose(0, 1).reshape({6});
  EXPECT_NE(t.values(), (Values{0, 1, 2, 3, 4, 5}))
      << "the elements of a transposed view do not lie in row-major order: reshape() must copy them first";
  EXPECT_EQ(t.values(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(Tensor({1, 1}, {3}).reshape({}).rank(), 0) << "shape {} has one element";
  EXPECT_EQ(Tensor({0, 3}).reshape({3, 0}).shape(), (Shape{3, 0}));
  EXPECT_THROW(x.reshape({5, 5}), std::invalid_argument) << "24 elements are not 25";
  EXPECT_THROW(x.reshape({-1, 5}), std::invalid_argument) << "24 is not a multiple of 5";
  EXPECT_THROW(x.reshape({-1, -1}), std::invalid_argument) << "only one size can be computed from the others";
  EXPECT_THROW(x.reshape({-2, -12}), std::invalid_argument)
      << "-2 times -12 is 24, but no axis has a negative size";
  EXPECT_THROW(Tensor({0}).reshape({0, -1}), std::invalid_argument)
      << "any size fits: none follows from the others";
}

TEST(Copies, HaveMemoryOfTheirOwn) {
  const Tensor x = counting({2, 3});
  const Tensor view = x.transpose(0, 1);
  const Tensor same = x;
  EXPECT_TRUE(same.shares_memory_with(x)) << "copying a Tensor copies the view, not the numbers";
  EXPECT_TRUE(x.contiguous().shares_memory_with(x)) << "contiguous() of a contiguous tensor is that tensor";
  EXPECT_FALSE(view.contiguous().shares_memory_with(x));
  EXPECT_EQ(view.contiguous().strides(), (Shape{2, 1}));
  EXPECT_FALSE(x.clone().shares_memory_with(x)) << "clone() always copies";
  EXPECT_NE(view.values(), x.values()) << "values() must go through the strides, not along memory";
  EXPECT_EQ(view.values(), (Values{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(view.clone().values(), (Values{0, 3, 1, 4, 2, 5}));
  const Tensor target({3, 3});
  copy(view, target.narrow(1, 1, 2));
  EXPECT_EQ(target.values(), (Values{0, 0, 3, 0, 1, 4, 0, 2, 5}))
      << "copy() must follow the strides of both tensors";
  copy(target.narrow(0, 2, 1), target.narrow(0, 0, 1));
  EXPECT_EQ(target.values(), (Values{0, 2, 5, 0, 1, 4, 0, 2, 5}))
      << "two rows of one matrix do not overlap: one can be copied to the other";
  const Tensor wider({2, 4});
  copy(x, wider.narrow(1, 0, 3));
  EXPECT_EQ(wider.values(), (Values{0, 1, 2, 0, 3, 4, 5, 0}))
      << "copy() of contiguous numbers must follow the strides of where they go, too";
  EXPECT_THROW(copy(x, target), std::invalid_argument)
      << "copy() does not broadcast: the shapes must be equal";
  EXPECT_THROW(copy(x, Tensor({3, 2})), std::invalid_argument)
      << "[2, 3] and [3, 2] have as many elements, but are not one shape";
}

TEST(Elementwise, FollowsStridesAndBroadcasts) {
  const auto half = [](float v) { return v / 2; };
  const auto minus = [](float a, float b) { return a - b; };
  const Tensor x = counting({2, 3});
  EXPECT_EQ(map(x.transpose(0, 1), half).values(), (Values{0, 1.5, 0.5, 2, 1, 2.5}));
  EXPECT_EQ(x.values(), counting({2, 3}).values()) << "map() must not change its argument";
  EXPECT_EQ(broadcast({2, 1, 4}, {3, 1}), (Shape{2, 3, 4}))
      << "from the last axis: 4 and 1, 1 and 3, 2 and nothing";
  EXPECT_EQ(broadcast({}, {3}), (Shape{3}));
  EXPECT_EQ(broadcast({1}, {0}), (Shape{0})) << "an axis of size 1 repeats 0 times beside one of size 0";
  EXPECT_THROW(broadcast({2, 3}, {2}), std::invalid_argument)
      << "the last axes are 3 and 2: shapes are not aligned at the first";
  const Tensor column({2, 1}, {10, 20}), row({3}, {1, 2, 3});
  const Tensor y = zip(column, row, minus);
  EXPECT_EQ(y.shape(), (Shape{2, 3})) << "both operands repeat";
  EXPECT_EQ(y.values(), (Values{9, 8, 7, 19, 18, 17}));
  EXPECT_TRUE(y.is_contiguous());
  EXPECT_EQ(zip(x.transpose(0, 1), Tensor({}, {1}), minus).values(), (Values{-1, 2, 0, 3, 1, 4}));
}

TEST(Sums, KeepTheAxisAndAddInDouble) {
  const Tensor x = counting({2, 3});
  EXPECT_EQ(sum(x, 0).shape(), (Shape{1, 3})) << "the axis stays, with size 1";
  EXPECT_EQ(sum(x, 0).values(), (Values{3, 5, 7}));
  EXPECT_EQ(sum(x.transpose(0, 1), 0).values(), (Values{3, 12}));
  EXPECT_EQ(sum(Tensor({0, 2}), 0).values(), (Values{0, 0})) << "the sum of nothing is 0";
  EXPECT_EQ(sum_to(x, {3}).shape(), (Shape{3}));
  EXPECT_EQ(sum_to(x, {3}).values(), (Values{3, 5, 7}))
      << "what broadcasting [3] to [2, 3] repeats are the rows";
  EXPECT_EQ(sum_to(x, {2, 1}).values(), (Values{3, 12}));
  EXPECT_EQ(sum_to(x, {}).values(), (Values{15})) << "a single number is repeated everywhere";
  EXPECT_EQ(sum_to(x, {2, 3}).values(), x.values()) << "nothing was repeated";
  EXPECT_THROW(sum_to(x, {2}), std::invalid_argument) << "[2] does not broadcast to [2, 3]";
  const Tensor many = Tensor({}, {0.1f}).expand({1000000});
  const float total = sum(many, 0).item();
  EXPECT_NEAR(total, 100000, 1)
      << "a million times 0.1: in float, the sum loses what is below its last digit; add in double";
  EXPECT_NEAR(sum_to(Tensor({}, {0.1f}).expand({1000, 1000}), {}).item(), 100000, 1)
      << "the same over two axes: sum_to() must add in double, too";
  EXPECT_THROW(sum(x, 2), std::invalid_argument) << "a matrix has no axis 2";
  EXPECT_THROW(sum(x, -1), std::invalid_argument) << "axes count from 0: there is no axis -1";
}

TEST(Max, FindsTheLargestAndNaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x({2, 3}, {-5, -2, -9, 4, 1, 8});
  EXPECT_EQ(max(x, 1).shape(), (Shape{2, 1}));
  EXPECT_NE(max(x, 1).at({0, 0}), 0) << "all are negative: the search must not begin with 0";
  EXPECT_EQ(max(x, 1).values(), (Values{-2, 8}));
  EXPECT_EQ(max(x, 0).values(), (Values{4, 1, 8}));
  EXPECT_EQ(max(Tensor({2, 2}, {9, 1, 2, 3}), 1).values(), (Values{9, 3}))
      << "each row searches for itself: the 9 of the first row came into the second";
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(max(Tensor({2}, {-infinity, -infinity}), 0).item(), -infinity);
  EXPECT_TRUE(std::isnan(max(Tensor({3}, {1, nan, 2}), 0).item()))
      << "a NaN is hidden: comparisons with it are false, so it needs a question of its own";
  EXPECT_TRUE(std::isnan(max(Tensor({3}, {nan, 1, 2}), 0).item())) << "a NaN is hidden by what follows it";
  EXPECT_THROW(max(Tensor({0, 2}), 0), std::invalid_argument) << "nothing has no largest element";
  EXPECT_EQ(max(Tensor({0, 2}), 1).shape(), (Shape{0, 1}))
      << "axis 1 has two elements: no rows have no largest elements, which is no error";
  EXPECT_THROW(max(x, 2), std::invalid_argument) << "a matrix has no axis 2";
  EXPECT_THROW(max(x, -1), std::invalid_argument) << "axes count from 0: there is no axis -1";
}

TEST(Matmul, MultipliesMatricesOfAnyStride) {
  const Tensor a = counting({2, 3}), b = counting({3, 2});
  EXPECT_EQ(matmul(a, b).shape(), (Shape{2, 2}));
  EXPECT_EQ(matmul(a, b).values(), (Values{10, 13, 28, 40}));
  EXPECT_EQ(matmul(a, a.transpose(0, 1)).values(), (Values{5, 14, 14, 50}))
      << "an operand may be a view: follow its strides";
  const Tensor batches = matmul(counting({2, 1, 2}), counting({2, 2, 1}));
  EXPECT_EQ(batches.shape(), (Shape{2, 1, 1}));
  EXPECT_EQ(batches.values(), (Values{1, 13}))
      << "each matrix of a batch has its own partner: 0 0 + 1 1, 2 2 + 3 3";
  const Tensor two = counting({2, 2, 2});
  EXPECT_EQ(matmul(two, two.transpose(1, 2)).values(), (Values{1, 3, 3, 13, 41, 59, 59, 85}))
      << "the matrices of a batch may be views, too: on the right, each of the two is transposed";
  EXPECT_EQ(matmul(two.transpose(1, 2), two).values(), (Values{4, 6, 6, 10, 52, 62, 62, 74}))
      << "the matrices of a batch may be views, too: on the left, each of the two is transposed";
  const Tensor mixed = two.transpose(0, 1);  // its matrices are 0 1 4 5 and 2 3 6 7
  EXPECT_EQ(matmul(two, mixed).values(), (Values{4, 5, 12, 17, 38, 47, 54, 67}))
      << "the second matrix on the right begins strides[0] after the first, not at the end of it";
  EXPECT_EQ(matmul(mixed, two).values(), (Values{2, 3, 10, 19, 26, 31, 66, 79}))
      << "the second matrix on the left begins strides[0] after the first, not at the end of it";
  EXPECT_EQ(matmul(counting({2, 3, 1, 2}), counting({2, 3, 2, 1})).values(),
            (Values{1, 13, 41, 85, 145, 221}))
      << "all axes before the last two count matrices: 2 x 3 of them";
  EXPECT_THROW(matmul(counting({2, 3, 1, 1}), counting({3, 2, 1, 1})), std::invalid_argument)
      << "six matrices each, but [2, 3] of them and [3, 2]: the axes must be equal, not only their product";
  EXPECT_EQ(matmul(Tensor({2, 0}), Tensor({0, 2})).values(), Values(4, 0.0f)) << "a sum of nothing is 0";
  EXPECT_EQ(matmul(Tensor({1, 3}, {1e8f, 1, -1e8f}), Tensor({3, 1}, {1, 1, 1})).item(), 0)
      << "the sum is in float, in the order of k: 1e8 + 1 is 1e8";
  EXPECT_THROW(matmul(a, a), std::invalid_argument) << "[2, 3] times [2, 3]: 3 columns need 3 rows";
  EXPECT_THROW(matmul(counting({2, 2, 2}), counting({3, 2, 2})), std::invalid_argument)
      << "2 matrices and 3 matrices";
  EXPECT_THROW(matmul(two, counting({2, 2})), std::invalid_argument)
      << "2 matrices and one: the axes before the last two must be equal, for matmul() does not broadcast";
  EXPECT_THROW(matmul(counting({2}), counting({2, 2})), std::invalid_argument) << "a vector is not a matrix";
}

}  // namespace
