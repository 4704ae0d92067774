#include "autograd/compare.h"

#include "kernels/compare.h"
#include "kernels/cpu/context.h"
#include "tests/cuda/ops.h"

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
  test::for_every_shape(
      [](const test::ShapeCase& wanted, DType dtype) {
        const Tensor a = small_integers(wanted, dtype, 1), b = small_integers(wanted, dtype, 2);
        test::expect_as_on_cpu([&](const auto& on) {
          std::vector<Tensor> results;
          for (const Predicate predicate :
               {Predicate::equal, Predicate::not_equal, Predicate::less, Predicate::less_equal,
                Predicate::logical_and, Predicate::logical_or, Predicate::logical_xor}) {
            results.push_back(on.empty(a.shape(), DType::boolean));
            kernels::compare(on.context, predicate, on(a), on(b), results.back());
          }
          return results;
        });
      },
      kDTypes);
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
