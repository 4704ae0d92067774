// What a warm training step of a whole network may not do, and which conversions of layouts it makes: a list
// for each model.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/implementations.h"
#include "nn/models/model.h"
#include "tests/support/count_new.h"
#include "tests/support/small_tasks.h"
#include "trainer/trainer.h"

namespace athanor::warm_models_test {

struct Counts {
  std::int64_t news = 0, primitives = 0, growths = 0, reorders = 0;

  static Counts now() {
    return {test::operator_news(), primitives_created(), allocator_of(kCpu).stats().growths, reorders_run()};
  }
};

class Watch final : public Callback {
 public:
  explicit Watch(std::vector<Counts>& to) : to_(to) { to_.reserve(1000); }
  void on_step_begin(Trainer&, const StepInfo&) override {
    before_ = Counts::now();
    before_.news = test::operator_news();  // the line above allocates, too
  }
  void on_step_end(Trainer&, const StepInfo&) override {
    const Counts after = Counts::now();
    to_.push_back({after.news - before_.news, after.primitives - before_.primitives,
                   after.growths - before_.growths, after.reorders - before_.reorders});
  }

 private:
  std::vector<Counts>& to_;
  Counts before_;
};

/// How many operands a step converts, with AVX-512 and oneDNN 2.6: weights and their gradients of
/// convolutions that oneDNN computes.
struct Expected {
  const char* model;
  std::int64_t f32, bf16;
};
constexpr Expected kModels[] = {{"lenet5", 3, 4},   {"resnet20", 14, 20},       {"resnet18_cifar", 20, 20},
                                {"cifarnet", 4, 4}, {"mobilenet_v2", 155, 155}, {"digits_cnn", 2, 1}};

void PrintTo(const Expected& of, std::ostream* out) {
  *out << of.model;
}

class WarmModels : public testing::TestWithParam<Expected> {};

TEST_P(WarmModels, AllocateNothingAndConvertWhatIsListed) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const auto& [name, f32, bf16] = GetParam();
  const std::int64_t side = std::min<std::int64_t>(nn::model_options(name).image_size, 64);
  const nn::ModelOptions options = nn::model_options(name, {.image_size = side});
  const auto train = synthetic({side, side, options.in_channels, options.classes}, 12, 1);
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    TrainerConfig config{.program = "test", .epochs = 3, .batch_size = 4};
    config.precision = precision;
    std::vector<Counts> steps;
    Trainer trainer(config);
    trainer.add(std::make_unique<Watch>(steps));
    trainer.fit(*nn::make_model(name, options, 1), *train, *train);
    ASSERT_EQ(steps.size(), 9u);
    const Counts last = steps.back();
    SCOPED_TRACE(name_of(precision));
    EXPECT_EQ(last.news, 0);
    EXPECT_EQ(last.primitives, 0);
    EXPECT_EQ(last.growths, 0);
    if (!cpu::has_avx512_bf16() || cpu::has_amx_bf16() || !cpu::onednn_version().starts_with("2.6")) continue;
    EXPECT_EQ(last.reorders, precision == Precision::f32 ? f32 : bf16);
  }
}

INSTANTIATE_TEST_SUITE_P(, WarmModels, testing::ValuesIn(kModels),
                         [](const auto& tested) { return std::string(tested.param.model); });

}  // namespace athanor::warm_models_test
