// A Trainer on several ranks whose tensors are on a device, where hosts know of a step only later.
#include <limits>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/shape.h"
#include "data/synthetic.h"
#include "nn/linear.h"
#include "tests/cuda/device_ranks.h"
#include "tests/support/errors.h"
#include "trainer/trainer.h"

namespace athanor::ranks_test {

using RanksOnDevice = test::DeviceTest;

/// Infinite on rank 1, which has one of the three samples of a batch.
class Overflowing final : public nn::Module {
 public:
  Overflowing() { register_module("out", out), initialize(1); }
  Tensor forward(const Tensor& x) override {
    const Tensor y = out(flatten(x));
    if (!training() || x.shape()[0] != 1) return y;
    return mul(y, full(y.shape(), std::numeric_limits<float>::infinity(), y.options()));
  }

  nn::Linear out{16, 3};
};

/// Rank 0 knows of every step at once, the other when it happens to.
class Impatient final : public Callback {
 public:
  void on_step_end(Trainer& trainer, const StepInfo&) override {
    const AllowSync allow;
    if (trainer.rank() == 0) current_stream(trainer.config().device).synchronize();
  }
};

TEST_F(RanksOnDevice, GiveUpOverflowsAfterTheSameStep) {
  TrainerConfig config;
  config.device = test::device();
  config.epochs = 1;
  config.batch_size = 3;
  config.threads = 1;
  config.workers = 0;
  config.max_overflows_at_floor = 2;
  config.collectives.timeout = std::chrono::seconds(60);
  std::vector<std::string> errors(2);
  test::run_staged_ranks(2, [&](dist::Transport& transport) {
    const auto train = synthetic({4, 4, 1, 3}, 60, 1), held_out = synthetic({4, 4, 1, 3}, 6, 2);
    Overflowing net;
    Trainer trainer(config, &transport);
    trainer.add(std::make_unique<Impatient>());
    errors[static_cast<std::size_t>(transport.rank())] =
        test::message_of<DivergedError>([&] { trainer.fit(net, *train, *held_out); });
  });
  // Two are the limit. What all ranks know of a step's outcome travels with the gradients of the next one.
  EXPECT_TRUE(test::names(errors[0], {"trainer", "3", "mul"}));
  EXPECT_EQ(errors[0], errors[1]);
}

}  // namespace athanor::ranks_test
