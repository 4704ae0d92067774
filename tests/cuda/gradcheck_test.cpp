#include "kernels/elementwise_ops.h"
#include "tests/cuda/device.h"
#include "tests/support/op_cases.h"

namespace athanor::gradcheck_test {

using test::In;
using test::OpCase;

class GradcheckOnDevice : public test::DeviceTest, public testing::WithParamInterface<OpCase> {};

TEST_P(GradcheckOnDevice, CentralDifferencesAgree) {
  std::vector<Tensor> inputs;
  for (const Shape& shape : GetParam().shapes) {
    const Tensor x =
        test::filled({shape}, DType::f64, {inputs.size() + 1, 7}, GetParam().low, GetParam().high)
            .to(test::device());
    require_grad(x);
    inputs.push_back(x);
  }
  gradcheck(GetParam().run, inputs);
}
INSTANTIATE_TEST_SUITE_P(Ops, GradcheckOnDevice, testing::ValuesIn(test::op_cases()),
                         [](const auto& test) { return test.param.name; });

using GradcheckUnary = test::DeviceTest;

#define ATH_CHECK_UNARY(Op, name)                                                          \
  TEST_F(GradcheckUnary, name) {                                                           \
    const Tensor x = test::filled({{2, 5}}, DType::f64, {1}, 0.3, 1.7).to(test::device()); \
    require_grad(x);                                                                       \
    gradcheck([](In in) { return athanor::name(in[0]); }, std::vector<Tensor>{x});         \
  }
ATH_UNARY_OPS(ATH_CHECK_UNARY)
#undef ATH_CHECK_UNARY

}  // namespace athanor::gradcheck_test
