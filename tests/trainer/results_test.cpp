#include "trainer/inference/results.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/in_memory.h"
#include "data/sample_row.h"
#include "tests/support/errors.h"
#include "tests/support/small_model.h"
#include "trainer/inference/evaluate.h"
#include "trainer/inference/label_results.h"
#include "trainer/inference/predictor.h"
#include "trainer/inference/value_results.h"
#include "trainer/metrics/several_labels.h"

// What evaluate measures of models of several labels, and of numbers.

namespace athanor::results_test {

using Json = nlohmann::json;

/// A batch of these samples with K labels each.
Batch batch_of(const std::vector<float>& labels, const std::vector<std::int64_t>& samples) {
  const std::int64_t n = std::ssize(samples), k = std::ssize(labels) / n;
  Batch batch;
  batch.samples = Tensor::from(samples, {n});
  batch.fields = std::make_shared<const std::vector<FieldSpec>>(1, FieldSpec{kLabelsField, DType::f32, {k}});
  batch.more[0] = Tensor::from(labels, {n, k});
  return batch;
}

void add(Results& to, const std::vector<float>& outputs, const std::vector<float>& labels,
         const std::vector<std::int64_t>& samples) {
  const std::int64_t n = std::ssize(samples);
  const Batch batch = batch_of(labels, samples);
  to.add(Tensor::from(outputs, {n, std::ssize(outputs) / n}), batch, batch.samples);
}

// Several labels -------------------------------------------------------------------------------------------

ModelInfo animals() {
  ModelInfo info{.classifies = false, .task = LabelKind::multilabel, .images = {1, 1, 1, 2}};
  info.class_names = {"cat", "dog"};
  return info;
}

// Logits and labels of cat and dog in four images: cats are confused in the second and third.
const std::vector<float> kSaid{2, -3, 1, 3, -1, 3, -2, -3}, kIs{1, 0, 0, 1, 1, 1, 0, 0};

LabelResults found(const ModelInfo& info = animals()) {
  LabelResults results(info, {0, 1}, 10);
  add(results, kSaid, kIs, {0, 1, 2, 3});
  return results;
}

TEST(LabelResults, AreWorkedOutByHand) {
  const LabelResults results = found();
  EXPECT_EQ(results.images(), 4);
  EXPECT_NEAR(results.average_precision_of(0), 0.5 * 1 + 0.5 * 2 / 3, 1e-12);
  EXPECT_EQ(results.average_precision_of(1), 1);
  EXPECT_NEAR(results.mean_average_precision(), (5.0 / 6 + 1) / 2, 1e-12);
  const ClassFigures cat = results.figures(0), dog = results.figures(1);
  EXPECT_EQ(cat.images, 2);
  EXPECT_EQ(cat.predicted, 2);
  EXPECT_EQ(cat.right, 1);
  EXPECT_EQ(dog.right, 2);
  EXPECT_EQ(results.exact(), 0.5);
  EXPECT_NEAR(results.loss(), 0.3843411, 1e-6) << "the mean of -log of the probability of what is true";
}

TEST(LabelResults, UseTheThresholdsOfTheModel) {
  ModelInfo info = animals();
  info.thresholds = {0.2, 0.99};
  const LabelResults results = found(info);
  EXPECT_EQ(results.figures(0).predicted, 3) << "a logit of -1 is a probability of 0.27";
  EXPECT_EQ(results.figures(0).right, 2);
  EXPECT_EQ(results.figures(1).predicted, 0);
  EXPECT_NEAR(results.average_precision_of(0), 5.0 / 6, 1e-12) << "which does not depend on them";
}

TEST(LabelResults, DoNotDependOnBatchesAndLeaveOutReplacedSamples) {
  LabelResults parts(animals(), {0, 1}, 10);
  add(parts, {2, -3}, {1, 0}, {0});
  add(parts, {1, 3, -1, 3, 9, 9, -2, -3}, {0, 1, 1, 1, 0, 0, 0, 0}, {1, 2, -1, 3});
  EXPECT_EQ(parts.json({}), found().json({}));
}

TEST(LabelResults, MatchColumnsOfLabelsInAnotherOrder) {
  LabelResults results(animals(), {1, 0}, 10);
  std::vector<float> swapped;
  for (std::size_t i = 0; i < kIs.size(); i += 2) swapped.insert(swapped.end(), {kIs[i + 1], kIs[i]});
  add(results, kSaid, swapped, {0, 1, 2, 3});
  EXPECT_EQ(results.json({}), found().json({}));
}

TEST(LabelResults, AsJson) {
  const Json json =
      Json::parse(found().json({"m", "d", [](std::int64_t i) { return i == 1 ? "b.jpg" : ""; }}));
  EXPECT_EQ(json.at("task"), "multilabel");
  EXPECT_EQ(json.at("model"), "m");
  EXPECT_EQ(json.at("images"), 4);
  EXPECT_NEAR(json.at("mAP"), 11.0 / 12, 1e-12);
  EXPECT_EQ(json.at("f1_micro"), 0.75);
  EXPECT_EQ(json.at("f1_macro"), 0.75);
  EXPECT_EQ(json.at("exact"), 0.5);
  const Json cat = json.at("classes").at(0);
  EXPECT_EQ(cat.at("class"), "cat");
  EXPECT_EQ(cat.at("precision"), 0.5);
  EXPECT_EQ(cat.at("recall"), 0.5);
  EXPECT_EQ(cat.at("threshold"), 0.5);
  ASSERT_EQ(json.at("mistakes").size(), 2u);
  const Json worst = json.at("mistakes").at(0), next = json.at("mistakes").at(1);
  EXPECT_EQ(worst.at("file"), "b.jpg");
  EXPECT_EQ(worst.at("actual"), Json({1}));
  EXPECT_EQ(worst.at("predicted"), Json({0, 1}));
  EXPECT_EQ(next.at("sample"), 2);
  EXPECT_EQ(next.at("actual"), Json({0, 1}));
  EXPECT_EQ(next.at("predicted"), Json({1}));
  EXPECT_FALSE(next.contains("file"));
}

TEST(LabelResults, AsText) {
  const std::string text = found().text({"m", "d", [](std::int64_t) { return "b.jpg"; }});
  EXPECT_TRUE(test::has_line(text, {"cat", "2", "83.33 %", "50.00 %", "0.500"})) << text;
  EXPECT_TRUE(test::has_line(text, {"b.jpg: dog; predicted cat, dog"})) << text;
  EXPECT_TRUE(test::has_line(text, {"2 of 2 images"})) << text;
  EXPECT_TRUE(test::names(found().headline(animals()),
                          {"binary cross entropy 0.3843", "mAP 0.9167", "0.7500 (micro)", "50.00 %"}));
}

TEST(LabelResults, ThatAreNoNumbersShow) {
  LabelResults results(animals(), {0, 1}, 10);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  add(results, {nan, 1, 1, 1}, {1, 1, 0, 1}, {0, 1});
  const Json json = Json::parse(results.json({}));
  EXPECT_TRUE(json.at("mAP").is_null());
  EXPECT_TRUE(json.at("loss").is_null());
  EXPECT_EQ(json.at("mistakes").at(0).at("sample"), 0) << "the worst of all";
  LabelResults none(animals(), {0, 1}, 10);
  EXPECT_TRUE(Json::parse(none.json({})).at("loss").is_null());
}

TEST(LabelResults, RejectOtherShapes) {
  LabelResults results(animals(), {0, 1}, 10);
  EXPECT_TRUE(test::names(test::message_of([&] {
                            add(results, {1, 2, 3}, {1, 0}, {0});
                          }),
                          {"[1, 3]", "[1, 2]"}));
}

// Numbers --------------------------------------------------------------------------------------------------

ModelInfo sizes() {
  ModelInfo info{.classifies = false, .task = LabelKind::values, .images = {1, 1, 1, 2}};
  info.class_names = {"age", "height"};
  return info;
}

ValueResults measured() {
  ValueResults results(sizes(), {0, 1}, 10);
  add(results, {1, 10, 2, 20}, {1, 10, 2, 20}, {0, 1});
  add(results, {3, 30, 7, 7}, {5, 30, 0, 0}, {2, -1});
  return results;
}

TEST(ValueResults, AreWorkedOutByHand) {
  const NumberFigures age = measured().figures(0), height = measured().figures(1), mean = measured().mean();
  EXPECT_NEAR(age.mae, 2.0 / 3, 1e-12);
  EXPECT_NEAR(age.rmse, std::sqrt(4.0 / 3), 1e-12);
  EXPECT_NEAR(age.r2, 1 - 4 / (26.0 / 3), 1e-12);
  EXPECT_EQ(height.mae, 0);
  EXPECT_EQ(height.r2, 1);
  EXPECT_NEAR(mean.mae, 1.0 / 3, 1e-12);
}

TEST(ValueResults, AsJsonAndText) {
  const Json json = Json::parse(measured().json({"m", "d", {}}));
  EXPECT_EQ(json.at("task"), "regression");
  EXPECT_EQ(json.at("images"), 3);
  EXPECT_NEAR(json.at("mae"), 1.0 / 3, 1e-12);
  EXPECT_EQ(json.at("values").at(1).at("name"), "height");
  EXPECT_EQ(json.at("values").at(1).at("rmse"), 0);
  ASSERT_EQ(json.at("mistakes").size(), 1u) << "the others are exact";
  EXPECT_EQ(json.at("mistakes").at(0), Json({{"sample", 2}, {"actual", {5, 30}}, {"predicted", {3, 30}}}));
  const std::string text = measured().text({});
  EXPECT_TRUE(test::has_line(text, {"age", "0.66667", "1.1547", "0.5385"})) << text;
  EXPECT_TRUE(test::has_line(text, {"image 2", "age 5, predicted 3", "height 30, predicted 30"})) << text;
  const Json none = Json::parse(ValueResults(sizes(), {0, 1}, 10).json({}));
  EXPECT_TRUE(none.at("mae").is_null());
}

// A model and a data set -----------------------------------------------------------------------------------

/// Noise, with three numbers each.
class Labelled final : public Dataset {
 public:
  explicit Labelled(std::vector<std::string> names = {"a", "b", "c"}) : names_(std::move(names)) {}
  std::int64_t size() const override { return 9; }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<FieldSpec> fields() const override {
    return {{"image", DType::u8, {8, 8, 1}, FieldKind::picture},
            {kLabelsField, DType::f32, {std::ssize(names_)}}};
  }
  std::vector<std::string> class_names() const override { return names_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>&) const override {
    const auto at = static_cast<std::size_t>(index);
    more_[at] = {std::as_bytes(std::span(labels_).subspan(3 * at, names_.size()))};
    return {.bytes = {images_.raw_data() + 64 * at, 64},
            .height = 8,
            .width = 8,
            .channels = 1,
            .more = {&more_[at], 1}};
  }
  Tensor images() const { return images_; }
  const std::vector<float>& labels() const { return labels_; }

 private:
  ImageSpec spec_{8, 8, 1, 3};
  std::vector<std::string> names_;
  Tensor images_ = test::noise_images({9, 8, 8, 1});
  std::vector<float> labels_{1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0, 0};
  mutable std::vector<StoredField> more_ = std::vector<StoredField>(9);
};

ModelFile model(LabelKind task) {
  ModelFile file{.path = {}, .info = test::model_info("digits_cnn", {8, 8, 1, 3}), .weights = {}};
  file.info.classifies = false;
  file.info.task = task;
  file.info.class_names = {"a", "b", "c"};
  file.info.batch_size = 4;
  file.weights = test::small_network("digits_cnn", file.info.images)->state_dict();
  if (task == LabelKind::values) {
    file.info.output_mean = {10, -3, 0};
    file.info.output_scale = {2, 0.5, 100};
  }
  return file;
}

Json evaluated(const ModelFile& file, const Dataset& data) {
  return Json::parse(evaluate_task(*make_network(file), file, data, {.workers = 0})->json({}));
}

// The file's weights are of (value - mean) / scale.
TEST(EvaluateTask, MeasuresNumbersInTheirUnits) {
  const ModelFile file = model(LabelKind::values);
  const Labelled data;
  const std::vector<double> raw = Predictor(test::small_network("digits_cnn", file.info.images), file.info)
                                      .logits(data.images())
                                      .to_vector();
  std::vector<double> sum(3);
  for (std::size_t i = 0; i < raw.size(); ++i) {
    const double value = raw[i] * file.info.output_scale[i % 3] + file.info.output_mean[i % 3];
    sum[i % 3] += std::abs(value - double{data.labels()[i]}) / 9;
  }
  const Json json = evaluated(file, data);
  for (std::size_t c = 0; c < 3; ++c)
    EXPECT_NEAR(json.at("values").at(c).at("mae"), sum[c], 1e-5 * (1 + sum[c])) << c;
}

TEST(EvaluateTask, MatchesLabelsByName) {
  const ModelFile file = model(LabelKind::multilabel);
  const Json json = evaluated(file, Labelled());
  EXPECT_EQ(json.at("images"), 9);
  EXPECT_EQ(json.at("classes").at(0).at("images"), 5);
  EXPECT_EQ(json.at("classes").at(2).at("images"), 4);
  const Json moved = evaluated(file, Labelled({"c", "a", "b"}));
  EXPECT_EQ(moved.at("classes").at(2).at("images"), 5) << "c is the data's first label";
}

TEST(EvaluateTask, RejectsOtherLabels) {
  const ModelFile file = model(LabelKind::multilabel);
  const auto refused = [&](const Dataset& data) { return test::message_of([&] { evaluated(file, data); }); };
  EXPECT_TRUE(test::names(refused(Labelled({"a", "b", "d"})), {"evaluate", "'c'", "'d'"}));
  EXPECT_TRUE(test::names(refused(Labelled({"a", "b"})), {"evaluate", "3", "[2]"}));
  const InMemoryDataset classes({8, 8, 1, 3}, std::vector<std::uint8_t>(64), {1});
  EXPECT_TRUE(test::names(refused(classes), {"evaluate", "multilabel", "3"}));
}

// The predictor of such a model -----------------------------------------------------------------------------

TEST(PredictorOfLabels, GivesEachItsProbabilityAndThreshold) {
  ModelFile file = model(LabelKind::multilabel);
  const Labelled data;
  const Predictor half(make_network(file), file.info);
  const std::vector<double> logits = half.logits(data.images()).to_vector();
  const Predictions found = half.predict(data.images());
  ASSERT_EQ(found.probabilities.shape(), (Shape{9, 3}));
  std::vector<double> cut;
  for (const Guess& one : half.guesses(found, 4, 1)) {
    const double probability = probability_of(logits[12 + static_cast<std::size_t>(one.index)]);
    EXPECT_NEAR(one.probability, probability, 1e-6);
    EXPECT_EQ(one.present, probability >= 0.5);
    cut.push_back(one.probability);
  }
  ASSERT_EQ(cut.size(), 3u) << "all, whatever is asked for";
  EXPECT_GE(cut[0], cut[1]);
  EXPECT_GE(cut[1], cut[2]);
  file.info.thresholds = {0, 0, 1};
  const Predictor other(make_network(file), file.info);
  for (const Guess& one : other.guesses(other.predict(data.images()), 4, 1))
    EXPECT_EQ(one.present, one.index < 2) << one.name;
}

TEST(PredictorOfNumbers, GivesThemInOrderAndInTheirUnits) {
  const ModelFile file = model(LabelKind::values);
  const Labelled data;
  const Predictor predictor(make_network(file), file.info);
  const std::vector<double> values = predictor.logits(data.images()).to_vector();
  const std::vector<Guess> guesses = predictor.guesses(predictor.predict(data.images()), 2, 1);
  ASSERT_EQ(guesses.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(guesses[i].name, file.info.class_names[i]);
    EXPECT_EQ(double{guesses[i].probability}, values[6 + i]);
    EXPECT_FALSE(guesses[i].present);
  }
  EXPECT_GT(values[6], 5) << "about its mean of 10";
}

}  // namespace athanor::results_test
