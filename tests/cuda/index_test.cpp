#include "kernels/index.h"

#include "tests/cuda/ops.h"

namespace athanor::index_test {

using test::context;
using IndexOnDevice = test::DeviceTest;

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
          const Tensor index = indices({count}, shape[axis]);
          Shape to = shape;
          to[axis] = count;
          const Tensor x = test::filled({shape}, dtype, {1}, 0, 100), dy = test::filled({to}, dtype, {2});
          test::expect_as_on_cpu([&](const auto& on) {
            const Tensor y = on.empty(to, dtype), dx = on(test::filled({shape}, dtype, {4}));
            kernels::index_select(on.context, on(x), axis, on(index), y);
            if (is_floating(dtype)) kernels::index_add(on.context, on(dy), axis, on(index), dx);
            return std::vector{y, dx};
          });
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
      test::expect_as_on_cpu([&](const auto& on) {
        const Tensor y = on.empty({11, width}, DType::u8);
        kernels::index_select(on.context, on(x), 0, on(index), y);
        return std::vector{y};
      });
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
  for (const DType dtype : test::kFloating) {
    for (const Case& one : cases) {
      for (int axis = 0; axis < one.x.rank(); ++axis) {
        bool fits = true;
        for (int i = 0; i < one.x.rank(); ++i) fits &= i == axis || one.index[i] <= one.x[i];
        if (!fits) continue;
        SCOPED_TRACE(fmt::format("{} {} by {} axis {}", dtype, one.x, one.index, axis));
        const Tensor x = test::filled({one.x, one.layout}, dtype, {1});
        const Tensor index = indices(one.index, one.x[axis]), dy = test::filled({one.index}, dtype, {2});
        test::expect_as_on_cpu([&](const auto& on) {
          const Tensor y = on.empty(one.index, dtype), dx = on(test::filled({one.x}, dtype, {4}));
          kernels::gather(on.context, on(x), axis, on(index), y);
          kernels::scatter_add(on.context, on(dy), axis, on(index), dx);
          return std::vector{y, dx};
        });
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
  EXPECT_REFUSED(where(condition, a, a), "cpu", "f32 on " + test::device().str());
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
      SCOPED_TRACE(fmt::format("{} {}", dtype, one.y));
      test::expect_as_on_cpu([&](const auto& on) {
        const Tensor y = on.empty(one.y, dtype);
        kernels::where(on.context, on(condition), on(a), on(b), y);
        return std::vector{y};
      });
    }
  }
}

}  // namespace athanor::index_test
