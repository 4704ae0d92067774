#include "kernels/extremum.h"

#include "tests/cuda/ops.h"

namespace athanor::extremum_test {

using test::context;
using ExtremumOnDevice = test::DeviceTest;

Shape without(const Shape& shape, int axis) {
  Shape rest;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i != axis) rest.push_back(shape[i]);
  }
  return rest;
}

void check(const Tensor& x, int axis) {
  SCOPED_TRACE(fmt::format("{} {} axis {}", x.dtype(), x.shape(), axis));
  const Shape rest = without(x.shape(), axis);
  const Tensor dy = test::filled({rest}, x.dtype(), {8});
  const auto run = [&](const auto& on) {
    const Tensor in = on(x), index = on.empty(rest, DType::i64), dx = empty_like(in);
    const Tensor values = on.empty(rest, x.dtype()), only_values = on.empty(rest, x.dtype()),
                 only_index = on.empty(rest, DType::i64);
    kernels::max(on.context, in, axis, values, index);
    kernels::max(on.context, in, axis, only_values, Tensor());
    kernels::max(on.context, in, axis, Tensor(), only_index);
    EXPECT_TRUE(test::same_bits(only_values.to(kCpu), values.to(kCpu)));
    EXPECT_TRUE(test::same_bits(only_index.to(kCpu), index.to(kCpu)));
    kernels::max_backward(on.context, index, on(dy), axis, dx);
    return std::vector{index, dx, values};
  };
  // Of two zeros that compare equal the CPU may keep the other's sign.
  test::expect_as_on_cpu(run, {test::kBits, test::kBits, 0});
}

// Few different values, so that the first of equals matters, and some NaN and infinities.
Tensor values(const Shape& shape, DType dtype, std::uint64_t seed) {
  const Tensor kinds = test::filled({shape}, DType::i32, {seed}, -3, 12);
  const Tensor x = Tensor::empty(shape, {dtype, kCpu});
  dispatch_floating(dtype, "test", [&]<class T>() {
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const int kind = kinds.data<std::int32_t>()[i];
      const float value = kind == 11 && i % 7 == 0 ? NAN
                          : kind == -3             ? -INFINITY
                                                   : static_cast<float>(kind % 6);
      x.data<T>()[i] = T(static_cast<Accumulate<T>>(value));
    }
  });
  return x;
}

TEST_F(ExtremumOnDevice, EqualsCpuAlongEveryAxis) {
  const Shape shapes[] = {{1},     {7},     {0, 3},          {5, 7, 3}, {2, 3, 33},
                          {40, 5}, {9, 65}, {3, 100, 31, 1}, {20, 20},  {6, 256}};
  for (const DType dtype : test::kFloating) {
    for (const Shape& shape : shapes) {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        if (shape[axis] > 0) check(values(shape, dtype, 1), axis);
      }
    }
  }
}

TEST_F(ExtremumOnDevice, EqualsCpuForEveryRowLength) {
  for (const DType dtype : test::kFloating) {
    for (const std::int64_t n : {1, 2, 31, 32, 33, 1000, 1024, 1032, 2001})
      check(values({3, n}, dtype, 2), 1);
    check(test::filled({{4, 64}, test::Layout::misaligned}, dtype, {3}), 1);
  }
}

TEST_F(ExtremumOnDevice, NaNIsLargestAndTheFirstWins) {
  const float inf = INFINITY;
  const Tensor x = Tensor::from(std::vector<float>{1, NAN, inf, NAN, -inf, -inf, -inf, -inf, 2, 5, 5, 1},
                                {3, 4}, test::device());
  const Tensor index = Tensor::empty({3}, {DType::i64, test::device()});
  kernels::max(context(), x, 1, Tensor(), index);
  EXPECT_EQ(index.to_vector(), (std::vector<double>{1, 0, 1}));
}

}  // namespace athanor::extremum_test
