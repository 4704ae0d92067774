#include "autograd/conv_transpose.h"

#include "autograd/engine.h"
#include "tests/cuda/exact.h"
#include "tests/support/conv_transpose_cases.h"

namespace athanor::conv_transpose_test {

using ConvTransposeOnDevice = test::DeviceTest;
using test::ConvTransposeCase;
using test::exact;
using test::on_device_like;
using test::same_bits;

void check_case(const ConvTransposeCase& c, DType dtype, test::Layout layout = test::Layout::dense) {
  SCOPED_TRACE(
      fmt::format("x {} w {} stride {} groups {} {}", c.x, c.w, c.params.stride[0], c.params.groups, dtype));
  ConvTranspose2dParams params = c.params;
  params.impl = ConvImpl::reference;
  const Shape out = conv_transpose2d_shape(c.x, c.w, params);
  const Tensor x = require_grad(exact({c.x, layout}, dtype, {1})),
               w = require_grad(exact({c.w, layout}, dtype, {2}));
  const Tensor bias = require_grad(exact({{out[3]}}, dtype, {3})), dy = exact({out, layout}, dtype, {4});
  const Tensor x_on = require_grad(on_device_like(x.detach())),
               w_on = require_grad(on_device_like(w.detach()));
  const Tensor bias_on = require_grad(on_device_like(bias.detach()));
  const Tensor y = conv_transpose2d(x, w, bias, params), y_on = conv_transpose2d(x_on, w_on, bias_on, params);
  EXPECT_TRUE(same_bits(y_on.to(kCpu), y));
  backward(y, dy);
  backward(y_on, on_device_like(dy));
  EXPECT_TRUE(same_bits(grad_of(x_on).to(kCpu), grad_of(x)));
  EXPECT_TRUE(same_bits(grad_of(w_on).to(kCpu), grad_of(w)));
  EXPECT_TRUE(same_bits(grad_of(bias_on).to(kCpu), grad_of(bias)));
}

TEST_F(ConvTransposeOnDevice, EveryPassEqualsCpu) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16})
    for (const ConvTransposeCase& c : test::conv_transpose_cases()) check_case(c, dtype);
}

TEST_F(ConvTransposeOnDevice, TensorsMayStartOffAlignmentAndBeStrided) {
  for (const test::Layout layout : {test::Layout::misaligned, test::Layout::gapped})
    check_case({{2, 3, 3, 16}, {16, 4, 4, 8}, {.stride = {2, 2}, .padding = {1, 1}}}, DType::f16, layout);
}

TEST_F(ConvTransposeOnDevice, EmptySizesEqualCpu) {
  check_case({{0, 3, 3, 4}, {4, 3, 3, 2}, {}}, DType::f32);
  check_case({{2, 3, 3, 0}, {0, 3, 3, 2}, {}}, DType::f32);
  check_case({{2, 3, 3, 4}, {4, 3, 3, 0}, {}}, DType::f32);
}

}  // namespace athanor::conv_transpose_test
