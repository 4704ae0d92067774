// Operands that are strided or repeated, in rows of every length: they are laid out in pieces, and shared by
// threads.

#include "kernels/context.h"
#include "tests/support/ops.h"

namespace athanor::elementwise_rows_test {

/// Eighths from 1/8 to 5, which every floating dtype has.
Tensor eighths(const Shape& shape, DType dtype, int seed) {
  std::vector<double> numbers;
  for (std::int64_t i = 0; i < shape.numel(); ++i)
    numbers.push_back(static_cast<double>((i * 7 + i / 11 + seed) % 40 + 1) / 8);
  return cast(Tensor::from(numbers, shape), dtype);
}

class ElementwiseRows : public testing::TestWithParam<int> {
 protected:
  const test::Threads own_{GetParam()};
};

TEST_P(ElementwiseRows, AreThoseOfDenseOperands) {
  // Long rows, more than a piece; short ones, many to a piece; both with enough elements for all threads.
  const Shape shapes[] = {{3, 1100}, {40'000, 3}, {12'000, 7}, {300, 256}, {300, 257}, {2, 70'000}};
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
    for (const Shape& shape : shapes) {
      const std::int64_t rows = shape[0], columns = shape[1];
      const Tensor dense = eighths(shape, dtype, 1), turned = eighths({columns, rows}, dtype, 2);
      const Tensor others[] = {transpose(turned, 0, 1), eighths({rows, 1}, dtype, 3),
                               eighths({1, columns}, dtype, 4), eighths({1}, dtype, 5)};
      for (const Tensor& other : others) {
        const std::vector<double> a = dense.to_vector(), b = expand(other, shape).to_vector();
        std::vector<double> quotients, sums;
        for (std::size_t i = 0; i < a.size(); ++i) {
          quotients.push_back(b[i] / a[i]);
          sums.push_back(a[i] + b[i]);
        }
        EXPECT_TRUE(test::close(div(other, dense), quotients, test::epsilon_of(dtype)))
            << name_of(dtype) << other.shape().str();
        EXPECT_TRUE(test::close(add(dense, other), sums, test::epsilon_of(dtype)))
            << name_of(dtype) << other.shape().str();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, ElementwiseRows, testing::Values(1, 3));

}  // namespace athanor::elementwise_rows_test
