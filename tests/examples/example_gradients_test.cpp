// The tasks of examples/, with batch norms over all ranks: the gradients of a first step on two ranks are
// those of one rank with the whole batch.
#include <random>

#include <athanor.h>
#include <gtest/gtest.h>

// Each example in a namespace of its own; what it includes is there already.
#define main example_main
namespace contrastive {
#include "examples/contrastive.cpp"
}
namespace dcgan {
#include "examples/dcgan.cpp"
}
namespace denoise {
#include "examples/denoise.cpp"
}
namespace distill {
#include "examples/distill.cpp"
}
namespace keypoints {
#include "examples/keypoints.cpp"
}
namespace segment {
#include "examples/segment.cpp"
}
#undef main

namespace athanor::example_gradients_test {

constexpr std::int64_t kBatch = 12;

/// Keeps the gradients of the first arena after a step.
struct KeepGradients final : Callback {
  explicit KeepGradients(std::vector<double>& gradients) : to(gradients) {}
  void on_step_end(Trainer& trainer, const StepInfo&) override {
    const ParameterArena& arena = trainer.arena();
    for (int i = 0; i < std::ssize(arena.parameters()); ++i) {
      const std::vector<double> values = arena.gradient(i).to_vector();
      to.insert(to.end(), values.begin(), values.end());
    }
  }
  std::vector<double>& to;
};

using MakeTask = std::function<std::unique_ptr<Task>()>;

std::vector<double> first_gradients(const MakeTask& make, const Dataset& data, std::int64_t views,
                                    dist::Transport* transport) {
  TrainerConfig config;
  config.batch_size = kBatch;
  config.max_steps = 1;
  config.threads = 1;
  config.views = views;
  config.augment.flip = true;
  config.sync_bn = transport != nullptr;
  config.strategy = transport ? Strategy::ddp : Strategy::single;
  const std::unique_ptr<Task> task = make();
  task->networks().initialize(3);
  std::vector<double> gradients;
  Trainer trainer(config, transport);
  trainer.add(std::make_unique<KeepGradients>(gradients));
  trainer.fit(*task, data);
  return gradients;
}

void expect_equal(const MakeTask& make, const Dataset& data, std::int64_t views = 1) {
  const std::vector<double> whole = first_gradients(make, data, views, nullptr);
  dist::run_ranks(2, [&](dist::Transport& transport) {
    const std::vector<double> joint = first_gradients(make, data, views, &transport);
    ASSERT_EQ(joint.size(), whole.size());
    double error = 0, largest = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      error = std::max(error, std::abs(joint[i] - whole[i]));
      largest = std::max(largest, std::abs(whole[i]));
    }
    EXPECT_GT(largest, 1e-3);
    EXPECT_LT(error, 1e-5 * std::max(largest, 1.0)) << "of gradients up to " << largest;
  });
}

TEST(ExampleGradients, Contrastive) {
  expect_equal([] { return std::make_unique<contrastive::Contrast>(); },
               *synthetic({32, 32, 3, 10}, kBatch, 1), 2);
}
TEST(ExampleGradients, Dcgan) {
  expect_equal([] { return std::make_unique<dcgan::Dcgan>(); }, *synthetic({28, 28, 1, 10}, kBatch, 1));
}
TEST(ExampleGradients, Denoise) {
  expect_equal([] { return std::make_unique<denoise::Denoise>(0.5); },
               *synthetic({28, 28, 1, 10}, kBatch, 1));
}
struct Teacher {
  distill::Net net{32};
  Teacher() { net.initialize(5); }
};
struct Taught : private Teacher, distill::Distill {
  Taught() : Distill(net, 4, 0.9) {}
};
TEST(ExampleGradients, Distill) {
  expect_equal([] { return std::make_unique<Taught>(); }, *digits(Split::test));
}
TEST(ExampleGradients, Keypoints) {
  expect_equal([] { return std::make_unique<keypoints::Keypoints>(); }, keypoints::Discs(kBatch, 0));
}
TEST(ExampleGradients, Segment) {
  expect_equal([] { return std::make_unique<segment::Segment>(); }, segment::Shapes(kBatch, 0));
}

}  // namespace athanor::example_gradients_test
