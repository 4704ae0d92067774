#include "autograd/conv_transpose.h"

#include "tests/cuda/ops.h"
#include "tests/support/conv_transpose_cases.h"

namespace athanor::conv_transpose_test {

using ConvTransposeOnDevice = test::DeviceTest;
using test::ConvTransposeCase;
using test::exact;

void check_case(const ConvTransposeCase& c, DType dtype, test::Layout layout = test::Layout::dense) {
  SCOPED_TRACE(
      fmt::format("x {} w {} stride {} groups {} {}", c.x, c.w, c.params.stride[0], c.params.groups, dtype));
  ConvTranspose2dParams params = c.params;
  params.impl = ConvImpl::reference;
  const Shape out = conv_transpose2d_shape(c.x, c.w, params);
  test::expect_as_on_cpu([&](const auto& on) {
    const Tensor x = require_grad(on(exact({c.x, layout}, dtype, {1}))),
                 w = require_grad(on(exact({c.w, layout}, dtype, {2}))),
                 bias = require_grad(on(exact({{out[3]}}, dtype, {3})));
    const Tensor y = conv_transpose2d(x, w, bias, params);
    backward(y, on(exact({out, layout}, dtype, {4})));
    return std::vector{y.detach(), grad_of(x), grad_of(w), grad_of(bias)};
  });
}

TEST_F(ConvTransposeOnDevice, EveryPassEqualsCpu) {
  for (const DType dtype : test::kFloating)
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
