#include "trainer/inference/evaluate.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "data/defects.h"
#include "data/digits.h"
#include "data/in_memory.h"
#include "data/synthetic.h"
#include "dist/transports/thread_transport.h"
#include "kernels/conv_choices.h"
#include "nn/models/model.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "trainer/inference/predictor.h"
#include "trainer/trainer.h"

// What evaluate() measures is what the run reported of the weights that it has left, bit for bit.

namespace athanor::evaluate_test {

class EvaluateTest : public testing::Test {
 protected:
  /// A short training on the digits, by one rank or by more.
  FitReport train(TrainerConfig config, int ranks = 1) {
    config.program = "train_digits";
    config.model = "digits_cnn";
    config.batch_size = 32;
    config.val_batch_size = 47;  // the last batch is a smaller one, and no rank's part is another's
    config.threads = 1;
    config.run_dir = dir_ / fmt::format("run{}", ++runs_);
    FitReport report;
    const auto fit = [&](dist::Transport* transport) {
      const auto model = nn::make_model(config.model, {10, 1, 8}, 1);
      Trainer trainer(config, transport);
      const FitReport mine = trainer.fit(*model, *digits(Split::train), *test_);
      if (!transport || transport->rank() == 0) report = mine;
    };
    if (ranks == 1) {
      fit(nullptr);
    } else {
      dist::run_ranks(ranks, [&](dist::Transport& transport) { fit(&transport); });
    }
    return report;
  }
  void expect_reported(const FitReport& report) const {
    const Evaluation found = evaluate(load_model(report.model), *test_);
    EXPECT_EQ(found.images(), 360);
    EXPECT_EQ(found.loss(), report.test_loss);
    EXPECT_EQ(found.top1(), report.test_accuracy);
    EXPECT_GT(found.mistakes(), 0) << "else it shows little";
  }

  test::TempDir dir_;
  int runs_ = 0;
  std::unique_ptr<Dataset> test_ = digits(Split::test);
};

TEST_F(EvaluateTest, RunsConvolutionsAsTheRunDid) {
  {  // every convolution of this training by the definition, whatever is fastest here
    const MeasureConvs measure;
    train({.epochs = 1});
  }
  std::string choices = conv_choices();
  for (const char* impl : {" automatic\n", " vendor\n", " direct\n", " winograd\n"})
    for (std::size_t at; (at = choices.find(impl)) != std::string::npos;)
      choices.replace(at, std::string(impl).size(), " reference\n");
  set_conv_choices(choices);
  const FitReport report = train({.epochs = 1});
  set_conv_choices("");
  expect_reported(report);
  EXPECT_EQ(conv_choices(), "") << "what the process had chosen is restored";
  EXPECT_EQ(load_model(report.model).info.conv_choices, choices);
}

TEST_F(EvaluateTest, EqualsTheReportOfTheRun) {
  TrainerConfig best{.epochs = 4, .early_stop = EarlyStop{"val_loss", EarlyStop::kNever}};
  best.schedule = [](double, std::int64_t steps) {  // worse again at the end
    return Schedule([steps](std::int64_t step) { return step < steps / 2 ? 0.1f : 3.0f; });
  };
  TrainerConfig shared{.epochs = 1, .ema_decay = 0.9, .precision = Precision::f16};
  shared.strategy = Strategy::zero1;
  struct Case {
    const char* name;
    TrainerConfig config;
    int ranks = 1;
    bool others_are_last = false;  // the reported weights are not those of the last step
  };
  for (const Case& one :
       {Case{"f32", {.epochs = 2}}, Case{"bf16", {.epochs = 2, .precision = Precision::bf16}},
        Case{"f16", {.epochs = 2, .precision = Precision::f16}},
        Case{"average", {.epochs = 2, .ema_decay = 0.95}, 1, true}, Case{"best", best, 1, true},
        Case{"two ranks", shared, 2, true}, Case{"three ranks", shared, 3, true}}) {
    SCOPED_TRACE(one.name);
    const FitReport report = train(one.config, one.ranks);
    expect_reported(report);
    EXPECT_EQ(load_model(report.model).info.ranks, one.ranks);
    ASSERT_EQ(report.last_model.empty(), !one.others_are_last);
    if (report.last_model.empty()) continue;
    const ModelFile last = load_model(report.last_model);
    const Evaluation found = evaluate(last, *test_);
    EXPECT_EQ(found.loss(), report.last.loss);
    EXPECT_EQ(found.top1(), report.last.accuracy);
    EXPECT_EQ(last.info.test_loss, report.last.loss);
    EXPECT_NE(report.last.loss, report.test_loss);
  }
}

// A half precision rounds; batches of other sizes take other code, which may round an image or two another
// way.
TEST_F(EvaluateTest, InAPrecisionItMeasuresWhatAPredictorComputes) {
  const FitReport report = train({.epochs = 3});
  const ModelFile model = load_model(report.model);
  ASSERT_GT(report.test_accuracy, 0.8);
  Tensor images = Tensor::empty({test_->size(), 8, 8, 1}, {DType::u8});
  std::vector<std::int64_t> labels;
  for (std::int64_t i = 0; i < test_->size(); ++i)
    labels.push_back(test_->read(i, {images.data<std::uint8_t>() + i * 64, 64}));
  const double most = 2.01 / static_cast<double>(test_->size());
  for (const Precision precision : {Precision::f32, Precision::bf16, Precision::f16}) {
    SCOPED_TRACE(name_of(precision));
    const Evaluation found = evaluate(model, *test_, {.precision = precision});
    const Predictions said = Predictor(report.model, kCpu, TestViews::none, precision).predict(images);
    double right = 0;
    for (std::int64_t i = 0; i < test_->size(); ++i)
      right += said.classes.data<std::int64_t>()[i] == labels[static_cast<std::size_t>(i)];
    EXPECT_NEAR(found.top1(), right / static_cast<double>(test_->size()), most);
    EXPECT_NEAR(found.top1(), report.test_accuracy, most);
    EXPECT_NEAR(found.loss(), report.test_loss, precision == Precision::bf16 ? 1e-2 : 1e-3);
    if (precision != Precision::f32) {
      EXPECT_NE(found.loss(), report.test_loss) << "nothing was rounded";
    }
  }
}

TEST_F(EvaluateTest, RejectsImagesThatDoNotFitTheModel) {
  const ModelFile model = load_model(train({.epochs = 1}).model);
  const auto of = [&](const ImageSpec& spec, std::int64_t count) {
    return evaluate(model, *synthetic(spec, count));
  };
  EXPECT_ERROR(ArgumentError, of({28, 28, 1, 10}, 4), "8x8x1", "28x28x1");
  EXPECT_ERROR(ArgumentError, of({8, 8, 3, 10}, 4), "8x8x1", "8x8x3");
  EXPECT_ERROR(ArgumentError, of({8, 8, 1, 11}, 44), "evaluate", "10", "11");
  ModelFile named = model;
  named.info.class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  std::vector<std::string> names = named.info.class_names;
  names[3] = "x";
  const EvaluateOptions options{.on_note = [](const std::string& note) { ADD_FAILURE() << note; }};
  EXPECT_ERROR(ArgumentError, evaluate(named, InMemoryDataset(*test_, names), options), "evaluate", "'x'",
               "'a', 'b'");
}

/// Images of which two cannot be read.
class TwoAreGone final : public ImageDataset {
 public:
  explicit TwoAreGone(const Dataset& all) : all_(all) {}
  std::int64_t size() const override { return all_.size(); }
  const ImageSpec& spec() const override { return all_.spec(); }
  std::int64_t label(std::int64_t index) const override { return all_.label(index); }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    if (is_gone(index)) throw IoError(fmt::format("{}.img is gone", index));
    return all_.read(index, pixels);
  }
  static bool is_gone(std::int64_t index) { return index == 5 || index == 200; }

 private:
  const Dataset& all_;
};

TEST_F(EvaluateTest, UnreadableImagesAreAnErrorOrLeftOut) {
  const ModelFile model = load_model(train({.epochs = 1}).model);
  const TwoAreGone data(*test_);
  EXPECT_ERROR(IoError, evaluate(model, data), "sample 5", "--bad-samples");
  EXPECT_ERROR(IoError, evaluate(model, data, {.bad_samples = {.skip = true, .limit = 1}}), "1",
               "--bad-samples");
  const std::string all = test::message_of<UnreadableSamplesError>(
      [&] { evaluate(model, data, {.bad_samples = {.list = true}}); });
  EXPECT_TRUE(test::has_line(all, {"5.img"}) && test::has_line(all, {"200.img"})) << all;

  std::vector<std::string> notes;
  const Evaluation found = evaluate(
      model, data,
      {.bad_samples = {.skip = true}, .on_note = [&](const std::string& note) { notes.push_back(note); }});
  EXPECT_EQ(found.images(), 358);
  EXPECT_TRUE(test::names(notes.back(), {"2", "360", "sample 5"}));
  std::vector<std::int64_t> rest;
  for (std::int64_t i = 0; i < 360; ++i)
    if (!TwoAreGone::is_gone(i)) rest.push_back(i);
  const Subset others(std::shared_ptr<const Dataset>(std::shared_ptr<void>(), test_.get()), rest);
  EXPECT_EQ(found.confusion(), evaluate(model, others).confusion());
}

TEST_F(EvaluateTest, ClassesAreMatchedByName) {
  ModelFile model = load_model(train({.epochs = 1}).model);
  model.info.class_names = {"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"};
  const InMemoryDataset data(*test_, model.info.class_names);
  const Evaluation as_trained = evaluate(model, data);
  std::vector<std::string> notes;
  const EvaluateOptions options{.on_note = [&](const std::string& note) { notes.push_back(note); }};

  // The same images from a source whose classes have other numbers.
  std::vector<std::string> turned(model.info.class_names.rbegin(), model.info.class_names.rend());
  std::vector<std::int64_t> labels;
  for (const std::int64_t label : data.labels()) labels.push_back(9 - label);
  const InMemoryDataset source({8, 8, 1, 10}, {data.pixels().begin(), data.pixels().end()}, labels);
  const Evaluation matched = evaluate(model, InMemoryDataset(source, turned), options);
  EXPECT_EQ(matched.top1(), as_trained.top1());
  EXPECT_EQ(matched.confusion(), as_trained.confusion());
  EXPECT_TRUE(notes.empty());

  // A set without some classes is measured over those it has, and says so.
  const auto with_label = [&](std::int64_t label) {
    std::vector<std::int64_t> of_it;
    for (std::int64_t i = 0; i < data.size(); ++i)
      if (data.label(i) == label) of_it.push_back(i);
    return of_it;
  };
  const auto all = std::make_shared<InMemoryDataset>(*test_, model.info.class_names);
  const Subset nines(all, with_label(9));
  std::vector<std::uint8_t> pixels;
  for (std::int64_t i = 0; i < nines.size(); ++i) {
    pixels.resize(pixels.size() + 64);
    (void)nines.read(i, std::span(pixels).last(64));
  }
  const InMemoryDataset bare({8, 8, 1, 1}, pixels,
                             std::vector<std::int64_t>(static_cast<std::size_t>(nines.size())));
  const Evaluation of_nines = evaluate(model, InMemoryDataset(bare, {"j"}), options);
  EXPECT_EQ(of_nines.images(), nines.size());
  EXPECT_EQ(of_nines.top1(), evaluate(model, nines).top1());
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(test::names(notes[0], {"9", "10", "'a'"})) << notes[0];

  notes.clear();
  EXPECT_EQ(evaluate(model, *test_, options).top1(), as_trained.top1());
  ASSERT_EQ(notes.size(), 1u) << "labels without names are taken for numbers of classes";
  EXPECT_TRUE(test::names(notes[0], {"'a'", "'j'"})) << notes[0];
}

TEST_F(EvaluateTest, RefusesNetworksThatTheirProgramAloneKnows) {
  ModelFile model = load_model(train({.epochs = 1}).model);
  model.info.model = "mine";
  EXPECT_ERROR(ArgumentError, evaluate(model, *test_), "model", "mine", "train_digits");
  model.info.model = "lenet5";  // takes no images of 8x8
  EXPECT_ERROR(IoError, evaluate(model, *test_), "model", "run1/model.safetensors");
}

}  // namespace athanor::evaluate_test
