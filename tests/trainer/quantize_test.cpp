// A float model becomes one of 8-bit integers: which layers, at what loss, and the file that is read back.
#include "trainer/inference/quantize.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "autograd/grad_mode.h"
#include "autograd/topk.h"
#include "data/preprocess.h"
#include "data/synthetic.h"
#include "nn/models/model.h"
#include "tensor/io/safetensors.h"
#include "tests/support/errors.h"
#include "tests/support/temp_dir.h"
#include "trainer/inference/predictor.h"
#include "trainer/inference/weights_file.h"

namespace athanor::quantize_test {

constexpr ImageSpec kDigits{8, 8, 1, 10};

/// Normalised images, as a network takes them.
Tensor input_of(const ModelInfo& info, const InMemoryDataset& data) {
  Batch batch;
  batch.images = Tensor::from(data.pixels(), {data.size(), info.images.height, info.images.width, 1});
  batch.samples = Tensor::zeros({data.size()}, {DType::i64});
  return Preprocess(info.images, info.pixels, DType::f32, kCpu)(batch, 0, false);
}

Tensor results_of(nn::Module& network, const Tensor& input) {
  const InferenceMode inference;
  network.eval();
  return network(input);
}

/// A network with random weights, and biases with which it takes images for all classes alike.
ModelFile float_model() {
  ModelFile model;
  model.path = "float/model.safetensors";
  model.info.program = "train_small";
  model.info.model = "digits_cnn";
  model.info.images = kDigits;
  model.info.pixels = {{0.5}, {0.25}};
  const auto network = nn::make_model(model.info.model, {10, 1, 8}, 3);
  model.weights = network->state_dict();
  const Tensor logits = results_of(*network, input_of(model.info, *synthetic(kDigits, 256, 9)));
  float* const bias = model.weights.tensor("fc.bias").data<float>();
  const std::vector<double> all = logits.to_vector();
  for (std::size_t i = 0; i < all.size(); ++i) bias[i % 10] -= static_cast<float>(all[i] / 256);
  return model;
}

/// Images whose labels are what the model says: its accuracy is 100 %.
InMemoryDataset labelled_by(const ModelFile& model, std::int64_t count, std::uint64_t seed) {
  const auto images = synthetic(kDigits, count, seed);
  const Tensor logits = results_of(*make_network(model), input_of(model.info, *images));
  std::vector<std::int64_t> labels;
  for (const double one : topk(logits, 1).indices.to_vector())
    labels.push_back(static_cast<std::int64_t>(one));
  return {kDigits, {images->pixels().begin(), images->pixels().end()}, labels};
}

TEST(SpreadOver, ChoosesImagesFromEverywhere) {
  const auto all =
      std::make_shared<InMemoryDataset>(ImageSpec{1, 1, 1, 2}, std::vector<std::uint8_t>(1000), [] {
        std::vector<std::int64_t> labels(1000);
        std::fill(labels.begin() + 500, labels.end(), 1);  // class by class, as in folders
        return labels;
      }());
  for (const std::int64_t count : {1, 2, 64, 100, 512, 999, 1000, 5000}) {
    const auto some = spread_over(all, count);
    EXPECT_EQ(some->size(), std::min<std::int64_t>(count, 1000));
    if (count < 2) continue;
    std::int64_t ones = 0;
    const std::int64_t first = std::min<std::int64_t>(some->size(), 32);
    for (std::int64_t i = 0; i < first; ++i) ones += some->label(i);
    EXPECT_NEAR(static_cast<double>(ones) / static_cast<double>(first), 0.5, 0.07) << count;
  }
  EXPECT_ERROR(ArgumentError, spread_over(all, 0), "0");
}

TEST(QuantizeModel, ItsFileGivesTheSameResults) {
  const test::TempDir dir;
  const ModelFile model = float_model();
  const InMemoryDataset images = labelled_by(model, 200, 1);
  const QuantizedModel made = quantize_model(model, images, images, {.max_drop = 100});
  EXPECT_TRUE(made.layers.empty());
  EXPECT_EQ(made.before->score(), 100);
  EXPECT_GT(made.agreement, 0.9);
  EXPECT_LT(made.error, 0.2);
  save_model(dir / "int8.safetensors", made.file.info, made.file.weights);
  const OpenModel read = open_model(dir / "int8.safetensors");
  EXPECT_EQ(read.file.info.quantized, "int8");
  EXPECT_TRUE(read.file.info.float_model.ends_with("float/model.safetensors")) << read.file.info.float_model;
  EXPECT_TRUE(std::isnan(read.file.info.test_accuracy));
  const Tensor input = input_of(model.info, images);
  EXPECT_EQ(results_of(*read.network, input).to_vector(), results_of(*made.network, input).to_vector());
  // So a predictor says what an evaluation counts.
  const double score = evaluate_task(*read.network, read.file, images)->score();
  EXPECT_EQ(score, made.after->score());
  const Predictor predictor(dir / "int8.safetensors");
  const Predictions found = predictor.predict(Tensor::from(images.pixels(), {200, 8, 8, 1}));
  double right = 0;
  for (std::int64_t i = 0; i < 200; ++i) right += found.classes.data<std::int64_t>()[i] == images.label(i);
  EXPECT_NEAR(right / 2, score, 1e-9);
}

TEST(QuantizeModel, LayersWithTheLargestErrorsStayInF32) {
  const ModelFile model = float_model();
  const InMemoryDataset images = labelled_by(model, 200, 1);
  QuantizeModelOptions options{.percentile = 60, .max_drop = 100};
  const QuantizedModel cut = quantize_model(model, images, images, options);
  ASSERT_LT(cut.after->score(), 97) << "activations above a small one are lost";
  options.max_drop = 2;
  const QuantizedModel made = quantize_model(model, images, images, options);
  EXPECT_GE(made.after->score(), 98);
  EXPECT_FALSE(made.chosen.empty());
  EXPECT_EQ(made.layers.size(), cut.network->products_in(DType::i8).size());
  for (std::size_t i = 1; i < made.layers.size(); ++i)
    EXPECT_GE(made.layers[i - 1].error, made.layers[i].error);
  for (std::size_t i = 0; i < made.chosen.size(); ++i) EXPECT_EQ(made.chosen[i], made.layers[i].layer);
  const std::vector<std::string> kept = made.network->products_in(DType::f32);
  EXPECT_EQ(std::set<std::string>(kept.begin(), kept.end()),
            std::set<std::string>(made.chosen.begin(), made.chosen.end()));
  // Evaluation finds the same of the file that lost too much.
  const std::vector<LayerError> found = layer_errors(*cut.network, model, images);
  ASSERT_EQ(found.size(), made.layers.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].layer, made.layers[i].layer);
    EXPECT_NEAR(found[i].error, made.layers[i].error, 0.05 * found[i].error);
  }
}

TEST(QuantizeModel, EachMethodHasRangesOfItsOwn) {
  const ModelFile model = float_model();
  const InMemoryDataset images = labelled_by(model, 100, 1);
  std::set<std::vector<double>> results;
  for (const nn::QuantizerMethod method : nn::kQuantizerMethods) {
    const QuantizedModel made =
        quantize_model(model, images, images, {.method = method, .percentile = 99, .max_drop = 100});
    EXPECT_GT(made.agreement, 0.5) << name_of(method);
    results.insert(results_of(*made.network, input_of(model.info, images)).to_vector());
  }
  EXPECT_EQ(results.size(), 3u);
}

TEST(QuantizeModel, NumbersKeepTheirUnits) {
  ModelFile model = float_model();
  model.info.classifies = false;
  model.info.task = LabelKind::values;
  model.info.output_mean = std::vector<double>(10, 1000);
  model.info.output_scale = std::vector<double>(10, 50);
  const auto images = synthetic(kDigits, 64, 1);
  const Tensor input = input_of(model.info, *images);
  const std::vector<double> right = results_of(*make_network(model), input).to_vector();
  nn::Calibration seen(*make_network(model), {8, 8, 1});
  seen.observe(input);
  ModelFile file = model;
  file.weights = nn::quantize(seen)->state_dict();
  file.info.quantized = kInt8;
  file.info.output_mean = file.info.output_scale = {};
  const std::vector<double> found = results_of(*make_network(file), input).to_vector();
  ASSERT_EQ(found.size(), right.size());
  for (std::size_t i = 0; i < right.size(); ++i) EXPECT_NEAR(found[i], right[i], 25) << "half a scale";
}

TEST(QuantizeModel, RefusesWhatItCannotDo) {
  const test::TempDir dir;
  const ModelFile model = float_model();
  const InMemoryDataset images = labelled_by(model, 40, 1);
  const QuantizedModel made = quantize_model(model, images, images, {.max_drop = 100});
  ModelFile quantized = made.file;
  quantized.path = "int8.safetensors";
  EXPECT_ERROR(ArgumentError, quantize_model(quantized, images, images), "int8.safetensors",
               made.file.info.float_model);
  const std::string first = made.network->products_in(DType::i8).front(), misspelt = first + "x";
  EXPECT_ERROR(ArgumentError, quantize_model(model, images, images, {.keep_f32 = {misspelt}}), misspelt,
               first);
  EXPECT_ERROR(ArgumentError, quantize_model(model, images, images, {.max_drop = -1}), "-1");
  // Integers are not trained on.
  save_model(dir / "int8.safetensors", made.file.info, made.file.weights);
  const auto network = nn::make_model("digits_cnn", {10, 1, 8}, 0);
  EXPECT_ERROR(ArgumentError, load_weights(dir / "int8.safetensors", *network), "int8.safetensors", "int8",
               made.file.info.float_model);
}

/// Images of which one cannot be read.
class OneIsGone final : public ImageDataset {
 public:
  explicit OneIsGone(const Dataset& all) : all_(all) {}
  std::int64_t size() const override { return all_.size(); }
  const ImageSpec& spec() const override { return all_.spec(); }
  std::int64_t label(std::int64_t index) const override { return all_.label(index); }
  std::int64_t read(std::int64_t index, std::span<std::uint8_t> pixels) const override {
    if (index == 5) throw IoError("5.img is gone");
    return all_.read(index, pixels);
  }

 private:
  const Dataset& all_;
};

TEST(QuantizeModel, UnreadableImagesAreAnErrorOrLeftOut) {
  const ModelFile model = float_model();
  const InMemoryDataset images = labelled_by(model, 100, 1);
  const OneIsGone data(images);
  EXPECT_ERROR(IoError, quantize_model(model, data, images, {.max_drop = 100}), "5.img", "--bad-samples");
  const BadSamples skip{.skip = true};
  QuantizeModelOptions options{.percentile = 60, .max_drop = 1, .evaluate = {.bad_samples = skip}};
  const QuantizedModel made = quantize_model(model, data, data, options);
  EXPECT_EQ(made.before->images(), 99);
  EXPECT_FALSE(made.layers.empty()) << "whose errors are measured on these images";
  EXPECT_ERROR(IoError, layer_errors(*made.network, model, data), "5.img");
  EXPECT_EQ(layer_errors(*made.network, model, data, skip).size(),
            made.network->products_in(DType::i8).size());
}

TEST(QuantizeModel, ItsFileIsRefusedByVersionsThatDoNotKnowIt) {
  const test::TempDir dir;
  const ModelFile model = float_model();
  const InMemoryDataset images = labelled_by(model, 40, 1);
  const QuantizedModel made = quantize_model(model, images, images, {.max_drop = 100});
  const auto schema_of = [&](const ModelFile& file) {
    safetensors::Metadata about;
    save_model(dir / "m.safetensors", file.info, file.weights);
    (void)safetensors::load(dir / "m.safetensors", &about);
    return about["schema"];
  };
  EXPECT_EQ(schema_of(model), "2");
  EXPECT_EQ(schema_of(made.file), "3");
  // And by this one, where it says what this one does not know.
  ModelFile other = made.file;
  other.info.quantized = "int4";
  save_model(dir / "int4.safetensors", other.info, other.weights);
  EXPECT_ERROR(IoError, load_model(dir / "int4.safetensors"), "int4.safetensors", "quantized", "int8",
               "int4");
  // What it holds and what it says must agree.
  ModelFile unsaid = made.file;
  unsaid.info.quantized.clear();
  save_model(dir / "unsaid.safetensors", unsaid.info, unsaid.weights);
  EXPECT_ERROR(IoError, open_model(dir / "unsaid.safetensors"), "unsaid.safetensors");
  ModelFile untrue = model;
  untrue.info.quantized = kInt8;
  save_model(dir / "untrue.safetensors", untrue.info, untrue.weights);
  EXPECT_ERROR(IoError, open_model(dir / "untrue.safetensors"), "untrue.safetensors");
}

}  // namespace athanor::quantize_test
