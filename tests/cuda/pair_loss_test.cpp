#include "kernels/loss.h"
#include "tests/cuda/ops.h"

namespace athanor::pair_loss_test {

using PairLossOnDevice = test::DeviceTest;

// Both devices compute the same functors: what is not summed has the same bits.
template <class Op> void check(const Op& op, double low) {
  test::for_every_shape([&](const test::ShapeCase& wanted, DType dtype) {
    if (wanted.layout != test::Layout::dense && wanted.layout != test::Layout::misaligned) return;
    const DType wide = test::wide_dtype(dtype);
    const Tensor a = test::filled(wanted, dtype, {1}, -3, 3), b = test::filled(wanted, dtype, {2}, low, 1);
    const Tensor weight = Op::kWeighted ? test::filled(wanted, wide, {3}, 0, 3) : Tensor();
    test::expect_as_on_cpu(
        [&](const auto& on) {
          const Tensor y = on.empty(a.shape(), wide), sum = on.empty({}, wide);
          kernels::pair_loss_sum(on.context, op, on(a), on(b), on(weight), 0.125, sum);
          kernels::pair_loss(on.context, op, on(a), on(b), on(weight), y);
          std::vector<Tensor> results{sum, y};
          for (const Shape& shape : {a.shape(), Shape{}}) {
            const Tensor dy = on(test::filled({shape}, wide, {4}, 0.5, 1.5));
            const auto gradient = [&](const auto& of) {
              results.push_back(on.empty(a.shape(), dtype));
              kernels::pair_loss_backward(on.context, of, on(a), on(b), on(weight), 0.125, dy,
                                          results.back());
            };
            gradient(op);
            if constexpr (!Op::kSymmetric) gradient(kernels::OfTarget<Op>{op});
          }
          return results;
        },
        {8 * test::epsilon_of(wide), test::kBits});
  });
}

TEST_F(PairLossOnDevice, EachEqualsCpu) {
  check(kernels::SquaredError{}, -1);
  check(kernels::AbsoluteError{}, -1);
  check(kernels::SmoothL1{0.7}, -1);
  check(kernels::Huber{0.7}, -1);
  check(kernels::KlDivergence{}, 0.1);
  check(kernels::LogKlDivergence{}, -3);
  check(kernels::BceWithLogits{}, 0);
  check(kernels::WeightedBceWithLogits{}, 0);
  check(kernels::SigmoidFocal{2, 0.25}, 0);
  check(kernels::SigmoidFocal{0.5, -1}, 0);
}

}  // namespace athanor::pair_loss_test
