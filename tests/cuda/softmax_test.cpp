#include "kernels/softmax.h"

#include "kernels/cpu/context.h"
#include "tests/cuda/ops.h"

namespace athanor::softmax_test {

using kernels::SoftmaxForm;
using test::context;
using SoftmaxOnDevice = test::DeviceTest;

constexpr SoftmaxForm kForms[] = {SoftmaxForm::probability, SoftmaxForm::logarithm};

// The sum of a slice is made in another order; a half result is then rounded to this or the next one.
double tolerance(DType dtype) {
  return is_half(dtype) ? test::epsilon_of(dtype) : 8 * test::epsilon_of(dtype);
}

void check(const Tensor& x, int axis, SoftmaxForm form) {
  SCOPED_TRACE(fmt::format("{} {} axis {} form {}", x.dtype(), x.shape(), axis, int(form)));
  const Tensor kept = empty_like(x), dy = test::filled({x.shape()}, x.dtype(), {9});
  kernels::softmax_forward(cpu_context(), form, x, axis, kept);
  test::expect_as_on_cpu(
      [&](const auto& on) {
        const Tensor in = on(x), y = empty_like(in), dx = empty_like(in);
        kernels::softmax_forward(on.context, form, in, axis, y);
        kernels::softmax_backward(on.context, form, on(kept), on(dy), axis, dx);
        return std::vector{y, dx};
      },
      {tolerance(x.dtype())});
}

// A row for every way a row is shared out: lanes, a warp's registers, a block's, and none.
TEST_F(SoftmaxOnDevice, EqualsCpuForEveryRowLength) {
  for (const DType dtype : test::kFloating) {
    for (const SoftmaxForm form : kForms) {
      for (const std::int64_t n : {1, 2, 10, 33, 255, 256, 264, 500, 520, 1000, 1024, 1500})
        check(test::filled({{3, n}}, dtype, {1}, -4, 4), 1, form);
      for (const std::int64_t n : {4096, 4101, 8192, 8200, 9001})
        check(test::filled({{2, n}}, dtype, {1}, -4, 4), 1, form);
      check(test::filled({{1000, 7}}, dtype, {1}, -4, 4), 1, form);
    }
  }
}

TEST_F(SoftmaxOnDevice, EqualsCpuAlongEveryAxis) {
  const Shape shapes[] = {{}, {1}, {0, 3}, {3, 0}, {5, 7, 3}, {2, 3, 33}, {40, 5}, {9, 65}, {2, 100, 31, 1}};
  for (const DType dtype : test::kFloating) {
    for (const SoftmaxForm form : kForms) {
      for (const Shape& shape : shapes) {
        for (int axis = 0; axis < shape.rank(); ++axis)
          check(test::filled({shape}, dtype, {2}, -4, 4), axis, form);
      }
      check(test::filled({{6, 48}, test::Layout::misaligned}, dtype, {3}, -4, 4), 1, form);
    }
  }
}

TEST_F(SoftmaxOnDevice, LongSlicesSumAccurately) {
  for (const SoftmaxForm form : kForms) check(test::filled({{70'001, 2}}, DType::f32, {6}, -4, 4), 0, form);
}

TEST_F(SoftmaxOnDevice, MayOverwriteItsInput) {
  for (const SoftmaxForm form : kForms) {
    for (const Shape& shape : {Shape{4, 96}, Shape{1, 9000}, Shape{1, 9001}, Shape{40, 33}}) {
      for (const int axis : {0, 1}) {
        const Tensor x = test::filled({shape}, DType::f32, {4}, -4, 4).to(test::device());
        const Tensor y = empty_like(x), dx = empty_like(x);
        kernels::softmax_forward(context(), form, x, axis, y);
        kernels::softmax_forward(context(), form, x, axis, x);
        EXPECT_TRUE(test::same_bits(x.to(kCpu), y.to(kCpu)));
        const Tensor dy = test::filled({shape}, DType::f32, {5}).to(test::device());
        kernels::softmax_backward(context(), form, y, dy, axis, dx);
        kernels::softmax_backward(context(), form, y, dy, axis, dy);
        EXPECT_TRUE(test::same_bits(dy.to(kCpu), dx.to(kCpu)));
      }
    }
  }
}

TEST_F(SoftmaxOnDevice, UnusualValuesSpreadAsOnTheCpu) {
  const float inf = INFINITY;
  for (const float odd : {NAN, inf, -inf}) {
    for (const std::int64_t n : {3, 40, 300, 5000, 9000}) {
      for (const std::int64_t at : {std::int64_t{0}, n / 2, n - 1}) {
        const Tensor x = test::filled({{2 * n}}, DType::f32, {6});
        x.data<float>()[at] = odd;
        for (const SoftmaxForm form : kForms) {
          for (const Shape& shape : {Shape{1, n}, Shape{n, 2}}) {
            const Tensor in = x.view_as_strided(shape, contiguous_strides(shape), 0);
            const int axis = shape[0] == 1 ? 1 : 0;
            const Tensor y = empty_like(in), y_on = Tensor::empty(shape, {DType::f32, test::device()});
            kernels::softmax_forward(cpu_context(), form, in, axis, y);
            kernels::softmax_forward(context(), form, in.to(test::device()), axis, y_on);
            EXPECT_TRUE(test::close(y_on.to(kCpu), y, 32 * test::epsilon_of(DType::f32)))
                << odd << " at " << at << " of " << n;
          }
        }
      }
    }
  }
  const Tensor masked = Tensor::from(std::vector<float>(64, -inf), {2, 32}, test::device());
  for (const int axis : {0, 1}) {
    const Tensor y = empty_like(masked);
    kernels::softmax_forward(context(), SoftmaxForm::probability, masked, axis, y);
    for (const double value : y.to_vector()) EXPECT_TRUE(std::isnan(value));
  }
}

}  // namespace athanor::softmax_test
