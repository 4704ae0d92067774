#include "autograd/dropout.h"

#include "autograd/checkpoint.h"
#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "kernels/dropout.h"
#include "kernels/scratch.h"
#include "tensor/detail/device_memory.h"
#include "tests/cuda/ops.h"

namespace athanor::dropout_test {

using test::context;
using DropoutOnDevice = test::DeviceTest;

// Both contexts read this step's seed and count; the device reads it from its own memory.
class BoundStep {
 public:
  explicit BoundStep(const StepState& step) : step_(step), memory_(sizeof step, test::device()) {
    detail::copy_device_bytes(memory_.as<StepState>(), test::device(), &step_, kCpu, sizeof step_,
                              Site::current());
    context().bind_step(memory_.as<StepState>());
    cpu_context().bind_step(&step_);
  }
  ~BoundStep() {
    context().bind_step(nullptr);
    cpu_context().bind_step(nullptr);
  }

 private:
  StepState step_;
  Scratch memory_;
};

TEST_F(DropoutOnDevice, HasTheBitsOfTheCpu) {
  std::int64_t first = 0;
  for (const auto& [seed, steps] : {std::pair<std::uint64_t, std::int64_t>{0, 0}, {1234567890123, 77}}) {
    StepState step;
    step.seed = seed;
    step.applied_steps = steps;
    const BoundStep bound(step);
    for (const DType dtype : test::kFloating) {
      for (const float p : {0.0f, 0.1f, 0.5f, 1.0f}) {
        for (const auto& wanted : test::shape_cases()) {
          if (wanted.layout != test::Layout::dense && wanted.layout != test::Layout::misaligned) continue;
          if (wanted.shape.numel() > 50000 && p != 0.1f) continue;
          SCOPED_TRACE(fmt::format("{} {} p {} step {} from {}", dtype, wanted.shape, p, steps, first));
          const RandomOp op{3, first};
          test::expect_as_on_cpu([&](const auto& on) {
            const Tensor x = on(test::filled(wanted, dtype, {1})), y = empty_like(x);
            kernels::dropout(on.context, p, op, x, y);
            kernels::dropout(on.context, p, op, x, x);  // in place
            return std::vector{y, x};
          });
          first = (first + 1) % 5;
        }
      }
    }
  }
}

// A context that was just made, on a stream other than the one it is used on; and one that goes while it is.
TEST_F(DropoutOnDevice, TheContextsOwnStepIsThereForEveryStream) {
  const Tensor ones = Tensor::from(std::vector<float>(512, 1), {512}, test::device());
  const Tensor expected = Tensor::empty({512}, {DType::f32, kCpu});
  kernels::dropout(cpu_context(), 0.5f, {1}, ones.to(kCpu), expected);
  synchronize(test::device());
  const Stream first = Stream::create(test::device()), second = Stream::create(test::device());
  const Tensor y = empty_like(ones);
  const auto spoil = [] {  // what the step's memory holds before and after
    const Scratch memory(sizeof(StepState), test::device());
    detail::set_device_bytes(memory.as<void>(), test::device(), 0xff, sizeof(StepState));
  };
  {
    const StreamGuard made_on(first);
    spoil();
    CudaContext fresh(test::device());
    const StreamGuard used_on(second);
    kernels::dropout(fresh, 0.5f, {1}, ones, y);
  }
  const StreamGuard guard(first);
  spoil();
  synchronize(test::device());
  EXPECT_TRUE(test::same_bits(y.to(kCpu), expected));
}

TEST_F(DropoutOnDevice, StreamsDifferByOpSeedAndStep) {
  const Tensor ones = Tensor::from(std::vector<float>(512, 1), {512}, test::device());
  const auto mask = [&](std::uint64_t seed, std::int64_t steps, std::int64_t op) {
    StepState step;
    step.seed = seed;
    step.applied_steps = steps;
    const BoundStep bound(step);
    const Tensor y = empty_like(ones);
    kernels::dropout(context(), 0.5f, {op}, ones, y);
    return y.to(kCpu);
  };
  const Tensor first = mask(1, 0, 0);
  EXPECT_TRUE(test::same_bits(mask(1, 0, 0), first));
  EXPECT_FALSE(test::same_bits(mask(2, 0, 0), first));
  EXPECT_FALSE(test::same_bits(mask(1, 1, 0), first));
  EXPECT_FALSE(test::same_bits(mask(1, 0, 1), first));
}

TEST_F(DropoutOnDevice, ACheckpointDrawsTheSameMaskAgain) {
  const Tensor x = Tensor::from(std::vector<float>(1000, 1), {1000}, test::device());
  require_grad(x);
  const auto gradient = [&](bool recompute) {
    context().set_random_ops(0);
    const auto fn = [](const Tensor& in) { return dropout(in, 0.5f, true); };
    const Tensor y = dropout(recompute ? checkpoint(fn, x) : fn(x), 0.5f, true);
    zero_grad(x);
    backward(sum(y));
    EXPECT_EQ(context().random_ops(), 2);
    return grad_of(x).to_vector();
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

}  // namespace athanor::dropout_test
