// Trainings of several labels of an image, and of numbers.
#include <cmath>

#include <gtest/gtest.h>

#include "data/defects.h"
#include "data/digits.h"
#include "data/mix.h"
#include "data/sample_row.h"
#include "dist/transports/thread_transport.h"
#include "nn/linear.h"
#include "nn/scale_outputs.h"
#include "nn/sequential.h"
#include "tensor/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/ops.h"
#include "tests/support/recorded_run.h"
#include "tests/support/small_training.h"
#include "trainer/inference/model_file.h"
#include "trainer/multi_label.h"
#include "trainer/outputs.h"
#include "trainer/regression.h"

namespace athanor::label_tasks_test {

constexpr std::int64_t kSide = 8;

/// Two digits side by side, with the digits that are there; or with numbers: the ink of both, and of the left
/// one, in a unit of their own.
class Pairs final : public FieldDataset {
 public:
  Pairs(LabelKind kind, Split split, std::int64_t count)
      : FieldDataset({.height = kSide, .width = 2 * kSide, .channels = 1},
                     {{kLabelsField, DType::f32, {kind == LabelKind::multilabel ? 10 : 2}}}),
        kind_(kind),
        count_(count),
        digits_(digits(split)) {}

  std::int64_t size() const override { return count_; }
  void read_fields(std::int64_t index, std::int64_t /*epoch*/, SampleRow& row) const override {
    if (damaged_ && index % 100 == 3) detail::fail<IoError>("pair {} is damaged", index);
    const std::span<float> labels = row.get<float>(kLabelsField);
    std::ranges::fill(labels, 0.0f);
    double ink[2] = {};
    for (std::int64_t place = 0; place < 2; ++place) {
      const std::int64_t digit = (index * (7 + 30 * place) + 3 * place) % digits_->size();
      const std::uint8_t* const from = digits_->pixels().data() + digit * kSide * kSide;
      for (std::int64_t i = 0; i < kSide * kSide; ++i) {
        row.image()[static_cast<std::size_t>(i / kSide * 2 * kSide + place * kSide + i % kSide)] = from[i];
        ink[place] += from[i];
      }
      if (kind_ == LabelKind::multilabel) labels[static_cast<std::size_t>(digits_->label(digit))] = 1;
    }
    if (kind_ == LabelKind::multilabel) return;
    labels[0] = static_cast<float>(1e6 + ink[0] + ink[1]);
    labels[1] = static_cast<float>(1e-6 * ink[0]);
  }

  bool damaged_ = false;  ///< one sample of a hundred

 private:
  LabelKind kind_;
  std::int64_t count_;
  std::unique_ptr<InMemoryDataset> digits_;
};

class Network final : public nn::Module {
 public:
  explicit Network(std::int64_t outputs)
      : hidden(2 * kSide * kSide, 96, {.activation = Activation::relu}), out(96, outputs) {
    register_module("hidden", hidden);
    register_module("out", out);
    initialize(3);
  }
  Tensor forward(const Tensor& x) override { return out(hidden(flatten(x))); }

  nn::Linear hidden, out;
};

TrainerConfig config_of(LabelKind task) {
  TrainerConfig config = test::small_config();
  config.task = task;
  config.threads = 1;
  config.optimizer_kind = OptimizerKind::adamw;
  config.lr = 3e-3;
  config.batch_size = 32;
  return config;
}

test::RecordedRun train(const TrainerConfig& config, dist::Transport* transport = nullptr) {
  const bool several = config.task == LabelKind::multilabel;
  Network model(several ? 10 : 2);
  Trainer trainer(config, transport);
  return test::record(trainer, model, Pairs(config.task, Split::train, 700),
                      Pairs(config.task, Split::test, 150));
}

constexpr LabelKind kTasks[]{LabelKind::multilabel, LabelKind::values};

TEST(LabelTasks, LearnDigitsOfAPair) {
  TrainerConfig config = config_of(LabelKind::multilabel);
  config.epochs = 20;
  for (const TaskLoss& loss : {TaskLoss{}, TaskLoss{.kind = LossKind::focal}}) {
    config.loss = loss;
    const test::RecordedRun run = train(config);
    EXPECT_GT(run.epochs.back().value_of("val_mAP"), 0.9);
    EXPECT_GT(run.epochs.back().value_of("val_f1_micro"), 0.75);
    EXPECT_GE(run.epochs.back().value_of("val_tuned_f1_macro"), run.epochs.back().value_of("val_f1_macro"));
    EXPECT_LT(run.epochs.back().train_loss, run.epochs.front().train_loss);
  }
}

// Of a mean far from 0, and of a deviation far from 1.
TEST(LabelTasks, LearnNumbersInTheirUnits) {
  TrainerConfig config = config_of(LabelKind::values);
  config.epochs = 20;
  for (const LossKind kind : {LossKind::usual, LossKind::l1, LossKind::huber}) {
    config.loss = {.kind = kind};
    const EpochReport last = train(config).epochs.back();
    EXPECT_GT(last.value_of("val_r2"), 0.95);
    const ValueScale scale = scale_of_values(Pairs(LabelKind::values, Split::train, 700));
    for (const std::size_t c : {0u, 1u}) {
      EXPECT_LT(last.value_of(fmt::format("val_mae/{}", c)), 0.2 * scale.deviation[c]);
      EXPECT_GT(last.value_of(fmt::format("val_rmse/{}", c)), last.value_of(fmt::format("val_mae/{}", c)));
    }
  }
}

// With weights that no step changes. A product's last bits depend on the number of its rows.
TEST(LabelTasks, MeasureTheSameOnAnyRanksAndBatches) {
  for (const LabelKind task : kTasks) {
    TrainerConfig config = config_of(task);
    config.epochs = 1;
    config.optimizer_kind = OptimizerKind::sgd;
    config.lr = 1e-30;
    config.weight_decay = 0;
    const test::RecordedRun one = train(config);
    ASSERT_GT(one.epochs[0].others.size(), 2u);
    for (const int ranks : {2, 3}) {
      config.val_batch_size = 10 * ranks + 1;
      std::vector<test::RecordedRun> runs(static_cast<std::size_t>(ranks));
      dist::run_ranks(ranks, [&](dist::Transport& transport) {
        runs[static_cast<std::size_t>(transport.rank())] = train(config, &transport);
      });
      for (const test::RecordedRun& run : runs) {
        ASSERT_EQ(run.weights, one.weights);
        EXPECT_NEAR(run.epochs[0].val_loss, one.epochs[0].val_loss, 1e-6);
        for (const NamedValue& value : one.epochs[0].others) {
          EXPECT_NEAR(run.epochs[0].value_of(value.name), value.value, 1e-4 * std::abs(value.value))
              << value.name;
        }
      }
    }
  }
}

TEST(LabelTasks, DescribeTheirModels) {
  Network ten(10), two(2);
  Metrics measured = Metrics::not_measured();
  const MultiLabel several(ten, 10, 5, {});
  ModelInfo info;
  several.describe(info, measured);
  EXPECT_EQ(info.task, LabelKind::multilabel);
  EXPECT_EQ(info.images.classes, 10);
  EXPECT_TRUE(info.thresholds.empty()) << "not measured";
  for (int c = 0; c < 10; ++c) measured.add(fmt::format("threshold/{}", c), 0.05 * c);
  several.describe(info, measured);
  ASSERT_EQ(info.thresholds.size(), 10u);
  EXPECT_EQ(info.thresholds[9], 0.05 * 9);

  const ValueScale scale{{10, -1}, {2, 0.5}};
  const Regression numbers(two, scale, 5, kCpu);
  ModelInfo of_numbers;
  numbers.describe(of_numbers, measured);
  EXPECT_EQ(of_numbers.task, LabelKind::values);
  EXPECT_EQ(of_numbers.output_mean, scale.mean);
  EXPECT_EQ(of_numbers.output_scale, scale.deviation);
}

TEST(LabelTasks, ScaleTheOutputsOfTheLastLayer) {
  Network model(2);
  model.eval();
  const Tensor images = test::filled({{3, kSide, 2 * kSide, 1}}, DType::f32, {1}, 0, 1);
  const NoGrad no_grad;
  const std::vector<double> before = model(images).to_vector();
  nn::scale_outputs(model, std::vector<double>{10, -1}, std::vector<double>{2, 0.5});
  const std::vector<double> after = model(images).to_vector();
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(after[i], i % 2 == 0 ? 2 * before[i] + 10 : 0.5 * before[i] - 1, 1e-5);
  EXPECT_ERROR(ArgumentError, nn::scale_outputs(model, std::vector<double>{1}, std::vector<double>{1}),
               "2 outputs", "1");
  nn::Linear fused(4, 2, {.activation = Activation::relu});
  fused.initialize(1);
  EXPECT_ERROR(ArgumentError, nn::scale_outputs(fused, std::vector<double>{1, 1}, std::vector<double>{1, 1}),
               "activation");
}

// A positive counts as often as there are negatives for each.
TEST(LabelTasks, BalanceTheWeightsOfPositives) {
  const Pairs pairs(LabelKind::multilabel, Split::train, 700);
  const std::vector<double> weights = positive_weights({.balanced = true}, pairs).to_vector();
  const std::vector<double> labels = pairs.numbers(kLabelsField);
  ASSERT_EQ(weights.size(), 10u);
  for (std::size_t c = 0; c < 10; ++c) {
    double with = 0;
    for (std::size_t i = c; i < labels.size(); i += 10) with += labels[i];
    EXPECT_NEAR(weights[c], (700 - with) / with, 1e-5 * weights[c]);
  }
  EXPECT_FALSE(positive_weights({}, pairs).defined());
  TrainerConfig config = config_of(LabelKind::multilabel);
  config.class_weights.balanced = true;
  config.epochs = 1;
  EXPECT_GT(train(config).epochs[0].train_loss, train(config_of(LabelKind::multilabel)).epochs[0].train_loss);
  config.loss.kind = LossKind::focal;
  EXPECT_ERROR(ArgumentError, train(config), "--class-weights", "bce", "focal");
}

// Those that cannot be read are for --bad-samples, and count in no mean.
TEST(LabelTasks, GoOnWithoutDamagedSamples) {
  for (const LabelKind task : kTasks) {
    const auto fit = [&](const BadSamples& bad_samples) {
      TrainerConfig config = config_of(task);
      config.epochs = 1;
      config.bad_samples = bad_samples;
      Pairs damaged(task, Split::train, 700);
      damaged.damaged_ = true;
      Network model(task == LabelKind::multilabel ? 10 : 2);
      Trainer trainer(config);
      return test::record(trainer, model, damaged, Pairs(task, Split::test, 150));
    };
    EXPECT_ERROR(IoError, fit({}), "pair 3 is damaged");
    const std::string listed = test::message_of<UnreadableSamplesError>([&] { (void)fit({.list = true}); });
    EXPECT_NE(listed.find("7 of 850 samples"), std::string::npos) << listed;
    EXPECT_NE(listed.find("pair 603"), std::string::npos) << listed;
    const test::RecordedRun run = fit({.skip = true});
    EXPECT_GE(run.epochs.at(0).loader.skipped, 1);
    EXPECT_LE(run.epochs.at(0).loader.skipped, 7) << "the last batch is left out if it is not whole";
    EXPECT_TRUE(std::isfinite(run.epochs.at(0).train_loss));
  }
  Pairs whole(LabelKind::values, Split::train, 3), damaged(LabelKind::values, Split::train, 4);
  damaged.damaged_ = true;  // its last
  EXPECT_EQ(scale_of_values(damaged).mean, scale_of_values(whole).mean);
  EXPECT_EQ(scale_of_values(damaged).deviation, scale_of_values(whole).deviation);
  Pairs three(LabelKind::multilabel, Split::train, 3), four(LabelKind::multilabel, Split::train, 4);
  four.damaged_ = true;
  EXPECT_EQ(positive_weights({.balanced = true}, four).to_vector(),
            positive_weights({.balanced = true}, three).to_vector());
}

// bce and focal of classes: against the formula, for a network of which only the last bias is not 0.
TEST(LabelTasks, ClassesMayBeQuestionsOfTheirOwn) {
  TrainerConfig config = test::small_config();
  config.epochs = 1;
  config.lr = 1e-30;
  config.weight_decay = 0;
  config.label_smoothing = 0.2;
  config.loss.kind = LossKind::bce;
  test::Perceptron model;
  for (const Tensor& weight : {model.out.weight(), model.out.bias()})
    weight.detach().copy_bytes_from(Tensor::zeros(weight.shape()));
  Trainer trainer(config);
  const test::RecordedRun run =
      test::record(trainer, model, *synthetic(test::kSmallSpec, 160, 1), *synthetic(test::kSmallSpec, 50, 2));
  EXPECT_NEAR(run.epochs[0].train_loss, std::log(2.0), 1e-6) << "each class is a question of one bit";
  EXPECT_NEAR(run.epochs[0].val_loss, std::log(5.0), 1e-6) << "cross entropy";
  config.loss.kind = LossKind::mse;
  Trainer other(config);
  EXPECT_ERROR(
      ArgumentError,
      test::record(other, model, *synthetic(test::kSmallSpec, 160, 1), *synthetic(test::kSmallSpec, 50, 2)),
      "--loss", "cross-entropy or bce or focal", "--task classify", "mse");
}

// The first of three images with the last, the second with itself.
TEST(LabelTasks, MixedImagesHaveMixedTargets) {
  Batch batch;
  batch.samples = Tensor::from(std::vector<std::int64_t>{4, 5, 6}, {3});
  batch.fields =
      std::make_shared<const std::vector<FieldSpec>>(std::vector<FieldSpec>{{kLabelsField, DType::f32, {2}}});
  batch.more[0] = Tensor::from(std::vector<float>{1, 0, 1, 1, 0, 0}, {3, 2});
  const Tensor outputs = Tensor::zeros({3, 2});
  EXPECT_EQ(targets_of(batch, outputs).to_vector(), (std::vector<double>{1, 0, 1, 1, 0, 0}));
  batch.own_share = 0.25;
  EXPECT_EQ(targets_of(batch, outputs).to_vector(), (std::vector<double>{0.25, 0, 1, 1, 0.75, 0}));
  batch.images = Tensor::from(std::vector<float>{8, 1, 4}, {3, 1, 1, 1});
  mix(batch, {.mixup = 1}, mix_key(1, 2, 3));
  const double share = batch.own_share;
  EXPECT_FALSE(batch.partner_labels.defined());
  EXPECT_NEAR(batch.images.to_vector()[0], 8 * share + 4 * (1 - share), 1e-6);
  EXPECT_NEAR(targets_of(batch, outputs).to_vector()[4], 1 - share, 1e-6);

  TrainerConfig config = config_of(LabelKind::multilabel);
  config.epochs = 20;
  config.augment.mixup = 0.2;
  EXPECT_GT(train(config).epochs.back().value_of("val_mAP"), 0.85);
}

TEST(LabelTasks, RefuseOtherData) {
  for (const LabelKind task : kTasks) {
    test::Perceptron model;
    Trainer trainer(config_of(task));
    EXPECT_ERROR(
        ArgumentError,
        trainer.fit(model, *synthetic(test::kSmallSpec, 160, 1), *synthetic(test::kSmallSpec, 50, 2)),
        "--train", "'labels'", name_of(task));
    TrainerConfig mixing = config_of(task);
    mixing.augment.mixup = 0.2;
    if (task == LabelKind::values) {
      EXPECT_ERROR(ArgumentError, train(mixing), "mixup");
    }
    TrainerConfig watching = config_of(task);
    watching.early_stop = EarlyStop{.metric = "val_accuracy", .patience = 3};
    EXPECT_ERROR(ArgumentError, train(watching), "val_accuracy",
                 task == LabelKind::multilabel ? "val_mAP" : "val_rmse");
    watching.early_stop->metric = task == LabelKind::multilabel ? "val_mAP" : "val_mae";
    EXPECT_GT(train(watching).report.steps.applied, 0);
  }
}

}  // namespace athanor::label_tasks_test
