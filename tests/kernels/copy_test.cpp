#include <limits>

#include "kernels/convert.h"
#include "kernels/cpu/context.h"
#include "tests/support/ops.h"

namespace athanor::copy_test {

using test::ShapeCase;

// Element by element, the slow way.
Tensor reference(const Tensor& x, DType dtype) {
  const Tensor y = Tensor::empty(x.shape(), {dtype, kCpu});
  dispatch_any(x.dtype(), [&]<class From>() {
    dispatch_any(dtype, [&]<class To>() {
      To* out = y.data<To>();
      test::for_each_offset(x, [&](std::int64_t at) { *out++ = kernels::convert<To>(x.data<From>()[at]); });
    });
  });
  return y;
}

TEST(Copy, EveryPairOfTypesOverEveryCase) {
  for (const ShapeCase& shape : test::shape_cases()) {
    for (const DType from : kDTypes) {
      if (shape.shape.numel() > 5000 && size_of(from) != 4) continue;
      const Tensor x = test::filled(shape, from, {1, 1}, is_floating(from) ? -300 : 0, 300);
      for (const DType to : kDTypes) {
        EXPECT_TRUE(test::same_bits(cast(x, to), reference(x, to)))
            << shape.shape.str() << static_cast<int>(shape.layout) << " " << name_of(from) << " to "
            << name_of(to);
      }
      EXPECT_TRUE(test::same_bits(clone(x), reference(x, from)));
    }
  }
}

TEST(Copy, EveryPermutationOfEverySize) {
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = test::filled({{5, 67, 9, 33}}, dtype, {2, 0}, 0, 200);
    std::array<int, 4> order{0, 1, 2, 3};
    do {
      const Tensor y = permute(x, order);
      EXPECT_TRUE(test::same_bits(contiguous(y), reference(y, dtype)));
      // And into a strided destination.
      const Tensor target = permute(Tensor::zeros(y.shape(), y.options()), order);
      const Tensor source = test::filled({target.shape()}, dtype, {3, 0}, 0, 200);
      kernels::copy(cpu_context(), source, target);
      EXPECT_TRUE(test::same_bits(target, source));
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(Copy, BroadcastsAndLeavesGapsAlone) {
  const Tensor row = arange(0, 3);
  const Tensor y = full({4, 6}, -1);
  kernels::copy(cpu_context(), row, y.view_as_strided({4, 3}, {6, 2}, 1));
  EXPECT_EQ(narrow(y, 0, 2, 1).to_vector(), (std::vector<double>{-1, 0, -1, 1, -1, 2}));
  const Tensor column = arange(0, 4).view_as_strided({4, 1}, {1, 1}, 0);
  kernels::copy(cpu_context(), column, narrow(y, 1, 0, 5));
  EXPECT_EQ(narrow(y, 0, 2, 1).to_vector(), (std::vector<double>{2, 2, 2, 2, 2, 2}));
}

TEST(Copy, AddIntoRoundsOnceOverEveryCase) {
  for (const ShapeCase& shape : test::shape_cases()) {
    const Tensor x = test::filled(shape, DType::f32, {4, 0});
    for (const DType dtype : test::kFloating) {
      const Tensor y = test::filled({shape.shape}, dtype, {5, 0});
      std::vector<double> sums = y.to_vector(), added = x.to_vector();
      for (std::size_t i = 0; i < sums.size(); ++i) {
        // The f32 sum of an f32 and a half is rounded to f32 first, by contract: arithmetic is f32.
        sums[i] = dtype == DType::f64
                      ? sums[i] + added[i]
                      : static_cast<float>(static_cast<float>(sums[i]) + static_cast<float>(added[i]));
      }
      kernels::add_into(cpu_context(), x, y);
      EXPECT_TRUE(test::same_bits(y, cast(Tensor::from(sums, shape.shape), dtype)));
    }
  }
}

TEST(Convert, ToIntegersSaturatesAndMakesNanZero) {
  using kernels::convert;
  using Limits = std::numeric_limits<std::int64_t>;
  for (const float value : {NAN, -NAN}) {
    EXPECT_EQ(convert<std::int64_t>(value), 0);
    EXPECT_EQ(convert<std::int32_t>(value), 0);
    EXPECT_EQ(convert<std::uint8_t>(value), 0);
    EXPECT_EQ(convert<bool>(value), true);
  }
  EXPECT_EQ(convert<std::int64_t>(1e30f), Limits::max());
  EXPECT_EQ(convert<std::int64_t>(-1e30), Limits::min());
  EXPECT_EQ(convert<std::int64_t>(INFINITY), Limits::max());
  EXPECT_EQ(convert<std::int64_t>(0x1p63), Limits::max());
  EXPECT_EQ(convert<std::int64_t>(std::nextafter(0x1p63, 0)), Limits::max() - 1023);
  EXPECT_EQ(convert<std::int32_t>(0x1p31f), INT32_MAX);
  EXPECT_EQ(convert<std::int32_t>(2147483647.5), INT32_MAX);
  EXPECT_EQ(convert<std::int32_t>(-2147483648.5), INT32_MIN);
  EXPECT_EQ(convert<std::int32_t>(-1e10), INT32_MIN);
  EXPECT_EQ(convert<std::int32_t>(-1.9f), -1);
  EXPECT_EQ(convert<std::uint8_t>(-0.9f), 0);
  EXPECT_EQ(convert<std::uint8_t>(-5.0), 0);
  EXPECT_EQ(convert<std::uint8_t>(255.9f), 255);
  EXPECT_EQ(convert<std::uint8_t>(256.0f), 255);
  EXPECT_EQ(convert<std::uint8_t>(Half(INFINITY)), 255);
  EXPECT_EQ(convert<std::uint8_t>(std::int32_t{257}), 1);
  EXPECT_EQ(convert<float>(true), 1.0f);
  EXPECT_EQ(convert<bool>(Half(-0.0f)), false);
}

TEST(Convert, VectorLoopsAgreeWithScalars) {
  std::vector<float> values;
  for (std::uint64_t i = 0; i < 4096; ++i) values.push_back(std::bit_cast<float>(philox_word({8, 0}, i)));
  const Tensor x = Tensor::from(values, {4096});
  for (const DType dtype : {DType::i64, DType::i32, DType::u8, DType::boolean, DType::f16, DType::bf16})
    EXPECT_TRUE(test::same_bits(cast(x, dtype), reference(x, dtype))) << name_of(dtype);
}

}  // namespace athanor::copy_test
