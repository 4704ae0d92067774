#include "autograd/topk.h"

#include "kernels/cpu/context.h"
#include "tests/cuda/ops.h"

namespace athanor::topk_test {

using TopKOnDevice = test::DeviceTest;

// Whole numbers with many ties, NaN among those that are floating.
Tensor few(const test::ShapeCase& wanted, DType dtype) {
  const Tensor whole = Tensor::empty(wanted.shape, {DType::i32, kCpu}), y = test::make(wanted, dtype);
  kernels::copy(cpu_context(), test::filled({wanted.shape}, DType::f32, {3}, 0, 9), whole);
  if (!is_floating(dtype)) {
    kernels::copy(cpu_context(), whole, y);
    return y;
  }
  const Tensor wide = Tensor::empty(wanted.shape, {DType::f32, kCpu});
  kernels::copy(cpu_context(), whole, wide);
  for (std::int64_t i = 5; i < wide.numel(); i += 7) wide.data<float>()[i] = NAN;
  kernels::copy(cpu_context(), wide, y);
  return y;
}

TEST_F(TopKOnDevice, EqualsCpu) {
  for (const DType dtype :
       {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32, DType::u8}) {
    for (const test::ShapeCase& wanted :
         {test::ShapeCase{{1}}, test::ShapeCase{{3, 0, 2}}, test::ShapeCase{{7, 9}},
          test::ShapeCase{{2, 300}}, test::ShapeCase{{5, 40, 3}},
          test::ShapeCase{{6, 8}, test::Layout::transposed}}) {
      const Tensor x = few(wanted, dtype);
      for (int axis = 0; axis < x.rank(); ++axis) {
        SCOPED_TRACE(fmt::format("{} {} axis {}", dtype, x.shape(), axis));
        for (const bool largest : {true, false}) {
          test::expect_as_on_cpu(
              [&](const auto& on) {
                const TopK found = topk(on(x), std::min<std::int64_t>(x.shape()[axis], 4), axis, largest);
                return std::vector{found.indices, found.values};
              },
              {test::kBits, 0});
        }
      }
    }
  }
}

TEST_F(TopKOnDevice, FindsMoreThanABlockHasThreads) {
  const Tensor x = few({{600}}, DType::f32);
  EXPECT_TRUE(test::same_bits(topk(x.to(test::device()), 600).indices.to(kCpu), topk(x, 600).indices));
}

}  // namespace athanor::topk_test
