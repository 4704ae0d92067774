#include "kernels/index.h"

#include "autograd/shape.h"
#include "tests/cuda/device.h"
#include "tests/support/errors.h"

namespace athanor::index_test {

using IndexOnDevice = test::DeviceTest;

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};

CudaContext& context() {
  return cuda_context(test::device());
}

Tensor indices(const Shape& shape, std::int64_t size) {
  return test::filled({shape}, DType::i64, {3}, 0, static_cast<double>(size));
}

TEST_F(IndexOnDevice, SelectAndAddHaveTheBitsOfTheCpu) {
  const Shape shapes[] = {{7}, {5, 4}, {3, 6, 5}, {2, 3, 16}, {4, 0}, {9, 300}, {2, 1100, 3}};
  for (const DType dtype : kDTypes) {
    for (const Shape& shape : shapes) {
      for (int axis = 0; axis < shape.rank(); ++axis) {
        for (const std::int64_t count : {0, 1, 10, 700}) {
          if (shape[axis] == 0 || (count == 700 && shape.numel() > 500)) continue;
          SCOPED_TRACE(fmt::format("{} {} axis {} count {}", dtype, shape, axis, count));
          const Tensor index = indices({count}, shape[axis]), index_on = index.to(test::device());
          Shape to = shape;
          to[axis] = count;
          const Tensor x = test::filled({shape}, dtype, {1}, 0, 100);
          const Tensor y = Tensor::empty(to, {dtype, kCpu}),
                       y_on = Tensor::empty(to, {dtype, test::device()});
          kernels::index_select(cpu_context(), x, axis, index, y);
          kernels::index_select(context(), x.to(test::device()), axis, index_on, y_on);
          EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y));
          if (!is_floating(dtype)) continue;
          const Tensor dy = test::filled({to}, dtype, {2}), dx = test::filled({shape}, dtype, {4});
          const Tensor dx_on = dx.to(test::device());
          kernels::index_add(cpu_context(), dy, axis, index, dx);
          kernels::index_add(context(), dy.to(test::device()), axis, index_on, dx_on);
          EXPECT_TRUE(test::same_bits(dx_on.to(kCpu), dx));
        }
      }
    }
  }
}

TEST_F(IndexOnDevice, SelectOfEveryAlignment) {
  const Tensor index = indices({11}, 6);
  for (const std::int64_t width : {1, 2, 8, 12, 16, 32}) {
    for (const std::int64_t off : {0, 1, 2, 8}) {
      const Tensor x =
          Tensor::empty({6 * width + off}, {DType::u8, kCpu}).view_as_strided({6, width}, {width, 1}, off);
      test::fill_uniform(x, {5}, 0, 256);
      const Tensor y = Tensor::empty({11, width}, {DType::u8, kCpu}),
                   y_on = Tensor::empty(y.shape(), {DType::u8, test::device()});
      kernels::index_select(cpu_context(), x, 0, index, y);
      kernels::index_select(context(), test::on_device_like(x), 0, index.to(test::device()), y_on);
      EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y));
    }
  }
}

TEST_F(IndexOnDevice, GatherAndScatterAddHaveTheBitsOfTheCpu) {
  struct Case {
    Shape x, index;
    test::Layout layout = test::Layout::dense;
  };
  const Case cases[] = {{{7}, {12}},
                        {{5, 4}, {5, 1}},
                        {{5, 4}, {3, 9}},
                        {{6, 5}, {6, 5}, test::Layout::transposed},
                        {{3, 6, 5}, {2, 6, 4}},
                        {{3, 6, 5}, {2, 3, 4}, test::Layout::gapped},
                        {{4, 3}, {0, 3}},
                        {{5000, 3}, {5000, 2}},
                        {{2, 40}, {2, 900}}};
  for (const DType dtype : kFloating) {
    for (const Case& one : cases) {
      for (int axis = 0; axis < one.x.rank(); ++axis) {
        bool fits = true;
        for (int i = 0; i < one.x.rank(); ++i) fits &= i == axis || one.index[i] <= one.x[i];
        if (!fits) continue;
        SCOPED_TRACE(fmt::format("{} {} by {} axis {}", dtype, one.x, one.index, axis));
        const Tensor x = test::filled({one.x, one.layout}, dtype, {1});
        const Tensor index = indices(one.index, one.x[axis]), index_on = index.to(test::device());
        const Tensor y = Tensor::empty(one.index, {dtype, kCpu}),
                     y_on = Tensor::empty(one.index, {dtype, test::device()});
        kernels::gather(cpu_context(), x, axis, index, y);
        kernels::gather(context(), test::on_device_like(x), axis, index_on, y_on);
        EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y));
        const Tensor dy = test::filled({one.index}, dtype, {2}), dx = test::filled({one.x}, dtype, {4});
        const Tensor dx_on = dx.to(test::device());
        kernels::scatter_add(cpu_context(), dy, axis, index, dx);
        kernels::scatter_add(context(), dy.to(test::device()), axis, index_on, dx_on);
        EXPECT_TRUE(test::same_bits(dx_on.to(kCpu), dx));
      }
    }
  }
}

// In f32, (1 + 2^-24) + 2^-24 is 1, and 2^-24 + 2^-24 + 1 is not: the order can be seen.
TEST_F(IndexOnDevice, EqualIndicesAreAddedInTheirOrder) {
  for (const bool large_first : {true, false}) {
    std::vector<float> terms(600, 0x1p-24f);
    terms[large_first ? 0 : 599] = 1;
    const Tensor dy = Tensor::from(terms, {600}, test::device());
    const Tensor index = Tensor::zeros({600}, {DType::i64, test::device()});
    const Tensor dx = Tensor::zeros({5}, {DType::f32, test::device()});
    kernels::index_add(context(), dy, 0, index, dx);
    EXPECT_EQ(dx.to_vector()[0], large_first ? 1.0 : 1 + 600 * 0x1p-24) << large_first;
    const Tensor again = Tensor::zeros({5}, {DType::f32, test::device()});
    kernels::scatter_add(context(), dy, 0, index, again);
    EXPECT_TRUE(test::same_bits(again.to(kCpu), dx.to(kCpu)));
  }
}

TEST_F(IndexOnDevice, OutOfRangeReadsZeroAndAddsNothing) {
  const Tensor x = Tensor::from(std::vector<float>{1, 2, 3}, {3}, test::device());
  const Tensor index = Tensor::from(std::vector<std::int64_t>{-1, 1, 3}, {3}, test::device());
  const Tensor y = empty_like(x), dx = Tensor::zeros({3}, x.options());
  kernels::check_indices(context(), "test", index, 3);
  kernels::index_select(context(), x, 0, index, y);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{0, 2, 0}));
  kernels::gather(context(), x, 0, index, y);
  EXPECT_EQ(y.to_vector(), (std::vector<double>{0, 2, 0}));
  kernels::index_add(context(), x, 0, index, dx);
  kernels::scatter_add(context(), x, 0, index, dx);
  EXPECT_EQ(dx.to_vector(), (std::vector<double>{0, 4, 0}));
}

TEST_F(IndexOnDevice, WhereNamesEveryDevice) {
  const Tensor condition = Tensor::zeros({2}, {DType::boolean, kCpu});
  const Tensor a = test::filled({{2}}, DType::f32, {1}).to(test::device());
  EXPECT_ERROR(ArgumentError, where(condition, a, a), "where", "cpu", "f32 on " + test::device().str());
}

TEST_F(IndexOnDevice, WhereBroadcastsLikeTheCpu) {
  struct Case {
    Shape condition, a, b, y;
  };
  const Case cases[] = {{{7}, {7}, {7}, {7}},
                        {{4, 1}, {5}, {4, 5}, {4, 5}},
                        {{}, {3, 2}, {1}, {3, 2}},
                        {{0, 3}, {3}, {0, 3}, {0, 3}},
                        {{67, 103}, {67, 103}, {67, 103}, {67, 103}}};
  for (const DType dtype : kDTypes) {
    for (const Case& one : cases) {
      const Tensor condition = test::filled({one.condition}, DType::boolean, {1});
      const Tensor a = test::filled({one.a}, dtype, {2}, 0, 100),
                   b = test::filled({one.b}, dtype, {3}, 0, 100);
      const Tensor y = Tensor::empty(one.y, {dtype, kCpu}),
                   y_on = Tensor::empty(one.y, {dtype, test::device()});
      kernels::where(cpu_context(), condition, a, b, y);
      kernels::where(context(), condition.to(test::device()), a.to(test::device()), b.to(test::device()),
                     y_on);
      EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y)) << fmt::format("{} {}", dtype, one.y);
    }
  }
}

}  // namespace athanor::index_test
