#include "kernels/compare.h"

#include <cmath>

#include "autograd/compare.h"
#include "autograd/reduce.h"
#include "kernels/copy.h"
#include "tests/cuda/device.h"

namespace athanor::compare_test {

using CompareOnDevice = test::DeviceTest;
using kernels::Predicate;

// Few values, so that many pairs are equal, as any dtype.
Tensor small_integers(const test::ShapeCase& wanted, DType dtype, std::uint64_t seed) {
  const Tensor y = test::make(wanted, dtype), i = Tensor::empty(wanted.shape, {DType::i32, kCpu});
  kernels::copy(cpu_context(), test::filled({wanted.shape}, DType::f32, {seed}, -3, 3), i);
  kernels::copy(cpu_context(), i, y);
  return y;
}

TEST_F(CompareOnDevice, EveryPredicateEqualsCpu) {
  for (const Predicate predicate :
       {Predicate::equal, Predicate::not_equal, Predicate::less, Predicate::less_equal,
        Predicate::logical_and, Predicate::logical_or, Predicate::logical_xor}) {
    for (const DType dtype : kDTypes) {
      for (const auto& wanted : test::shape_cases()) {
        const Tensor a = small_integers(wanted, dtype, 1), b = small_integers(wanted, dtype, 2);
        const Tensor y = Tensor::empty(a.shape(), {DType::boolean, kCpu});
        const Tensor y_on = Tensor::empty(a.shape(), {DType::boolean, test::device()});
        kernels::compare(cpu_context(), predicate, a, b, y);
        kernels::compare(cuda_context(test::device()), predicate, test::on_device_like(a),
                         test::on_device_like(b), y_on);
        EXPECT_TRUE(test::same_bits(y_on.to(kCpu), y)) << fmt::format(
            "{} {} {} {}", static_cast<int>(predicate), dtype, wanted.shape, static_cast<int>(wanted.layout));
      }
    }
  }
}

TEST_F(CompareOnDevice, BroadcastsAndTakesNumbersAndNaN) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, NAN}, {3, 1}, test::device());
  const Tensor b = Tensor::from(std::vector<float>{1, 2}, {2}, test::device());
  EXPECT_EQ(eq(a, b).to_vector(), (std::vector<double>{1, 0, 0, 1, 0, 0}));
  EXPECT_EQ(ne(a, a).to_vector(), (std::vector<double>{0, 0, 1}));
  EXPECT_EQ(ge(b, 2).to_vector(), (std::vector<double>{0, 1}));
  EXPECT_EQ(logical_not(a).to_vector(), (std::vector<double>{0, 0, 0}));
}

TEST_F(CompareOnDevice, AnyAndAll) {
  const Tensor x = Tensor::from(std::vector<std::int32_t>{0, 1, 0, 0, 1, 2}, {2, 3}, test::device());
  const int first[] = {0};
  EXPECT_EQ(any(x, first).to_vector(), (std::vector<double>{0, 1, 1}));
  EXPECT_EQ(all(x, first).to_vector(), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(any(x).item(), 1);
  EXPECT_EQ(all(x).item(), 0);
}

}  // namespace athanor::compare_test
