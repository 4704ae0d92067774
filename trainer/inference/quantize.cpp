#include "trainer/inference/quantize.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "data/in_memory.h"
#include "data/loader.h"
#include "data/preprocess.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

constexpr std::int64_t kBatch = 32;            // images at a time
constexpr std::int64_t kImagesForLayers = 64;  // by which a layer's error is measured

constexpr double kLeastDeviation = 1e-3;  // of results that hardly vary, in their root mean square

constexpr char kImages[] = "input";  // ObservedValue::name: pixels have no outliers, but often few values

/// Images in memory, of which a network gets normalised batches.
class Inputs {
 public:
  /// The first `count` images; one that cannot be read as `bad` says.
  Inputs(const ModelInfo& info, const Dataset& data, std::int64_t count, const BadSamples& bad)
      : preprocess_(info.images, info.pixels, DType::f32, kCpu) {
    LoaderOptions options;
    options.batch_size = kBatch;
    options.epochs = 1;
    options.bad_samples = bad;
    Loader loader(data, options);
    loader.start_epoch(0);
    std::int64_t left = count;
    for (Batch batch; left > 0 && loader.next(batch); left -= batch.size())
      batches_.push_back(clone(narrow(batch.images, 0, 0, std::min(left, batch.size()))));
  }
  /// use(images f32 [N, H, W, C]).
  template <class F> void for_each(const F& use) const {
    for (const Tensor& images : batches_) {
      Batch batch;
      batch.images = images;
      batch.samples = Tensor::zeros({images.dim(0)}, {DType::i64});
      use(preprocess_(batch, 0, false));
    }
  }

 private:
  Preprocess preprocess_;
  std::vector<Tensor> batches_;  // u8 [N, H, W, C]
};

/// What a network says of images: `columns` numbers for each.
struct Outputs {
  std::vector<double> values = {};
  std::size_t columns = 0;

  void add(const Tensor& results) {
    columns = static_cast<std::size_t>(results.dim(1));
    const std::vector<double> more = results.to_vector();
    values.insert(values.end(), more.begin(), more.end());
  }
  std::span<const double> row(std::size_t index) const {
    return std::span(values).subspan(index * columns, columns);
  }
  std::size_t rows() const { return columns == 0 ? 0 : values.size() / columns; }
};

template <class Network> Outputs outputs_of(Network& network, const Inputs& inputs) {
  const InferenceMode inference;
  Outputs outputs;
  inputs.for_each([&](const Tensor& images) { outputs.add(network.forward(images)); });
  return outputs;
}

/// As LayerError::error. Results that are all 0 give the root mean square itself.
double error_of(const Outputs& found, const Outputs& right) {
  double noise = 0, signal = 0, squares = 0;
  for (std::size_t column = 0; column < right.columns; ++column) {
    double mean = 0;
    for (std::size_t i = column; i < right.values.size(); i += right.columns) mean += right.values[i];
    mean /= static_cast<double>(right.rows());
    for (std::size_t i = column; i < right.values.size(); i += right.columns) {
      noise += std::pow(found.values[i] - right.values[i], 2);
      signal += std::pow(right.values[i] - mean, 2);
      squares += std::pow(right.values[i], 2);
    }
  }
  signal = std::max(signal, kLeastDeviation * kLeastDeviation * squares);
  return std::sqrt(noise / (signal > 0 ? signal : static_cast<double>(right.values.size())));
}

/// Whether two rows of logits mean the same.
bool same_meaning(const ModelInfo& info, std::span<const double> a, std::span<const double> b) {
  if (info.task == LabelKind::classes)
    return std::max_element(a.begin(), a.end()) - a.begin() ==
           std::max_element(b.begin(), b.end()) - b.begin();
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double threshold = info.threshold_of(static_cast<std::int64_t>(i));
    const auto has = [&](double logit) { return 1 / (1 + std::exp(-logit)) >= threshold; };
    if (has(a[i]) != has(b[i])) return false;
  }
  return true;
}

double agreement_of(const ModelInfo& info, const Outputs& found, const Outputs& right) {
  if (info.task == LabelKind::values) return std::numeric_limits<double>::quiet_NaN();
  std::size_t same = 0;
  for (std::size_t i = 0; i < right.rows(); ++i) same += same_meaning(info, found.row(i), right.row(i));
  return static_cast<double>(same) / static_cast<double>(right.rows());
}

/// Of each layer that `network` has in 8-bit integers, with its values stored as there.
std::vector<LayerError> errors_of(const nn::Calibration& calibration, const nn::QuantizedNetwork& network,
                                  const Inputs& inputs) {
  const std::vector<std::string> products = calibration.products();
  const Outputs right = outputs_of(calibration, inputs);
  nn::QuantizeOptions how;
  how.choose = [&](const nn::ObservedValue& value) {
    const nn::quantized::Graph& graph = network.graph();
    for (const nn::quantized::Value& stored : graph.values)
      if (stored.name == value.name && stored.quantizer >= 0) return quantizer_of(graph, stored);
    return nn::min_max_quantizer(value);  // it is f32 there
  };
  std::vector<LayerError> errors;
  for (const std::string& layer : network.products_in(DType::i8)) {
    how.keep_f32.clear();
    std::copy_if(products.begin(), products.end(), std::back_inserter(how.keep_f32),
                 [&](const std::string& one) { return one != layer; });
    errors.push_back({layer, error_of(outputs_of(*nn::quantize(calibration, how), inputs), right)});
  }
  std::stable_sort(errors.begin(), errors.end(),
                   [](const LayerError& a, const LayerError& b) { return a.error > b.error; });
  return errors;
}

void check_float(const ModelFile& model) {
  ATH_CHECK(!model.info.is_quantized(), "quantize: {} must be a float model, but is quantized to {}{}",
            model.path.string(), model.info.quantized,
            model.info.float_model.empty() ? "" : "; it was made of " + model.info.float_model);
}

Shape sample_of(const ModelInfo& info) {
  return {info.images.height, info.images.width, info.images.channels};
}

/// The model as it is compared: in f32, whatever its run's precision.
ModelFile in_f32(const ModelFile& model) {
  ModelFile file = model;
  file.info.precision = Precision::f32;
  return file;
}

/// The file of a network made of `model`.
ModelFile file_of(const nn::QuantizedNetwork& network, const ModelFile& model) {
  ModelFile file = in_f32(model);
  file.weights = network.state_dict();
  ModelInfo& info = file.info;
  info.quantized = kInt8;
  info.float_model = std::filesystem::weakly_canonical(model.path).string();
  info.output_mean = info.output_scale = {};  // the network's results are in their units
  info.test_loss = info.test_accuracy = std::numeric_limits<double>::quiet_NaN();  // of the float model
  return file;
}

}  // namespace

std::shared_ptr<const Dataset> spread_over(std::shared_ptr<const Dataset> data, std::int64_t count) {
  ATH_CHECK(count >= 1, "images: there must be at least one, but got {}", count);
  const std::int64_t size = data->size();
  count = std::min(count, size);
  std::int64_t step = count * 618 / 1000 + 1;  // the golden section: any first ones lie far apart
  while (count > 0 && std::gcd(step, count) != 1) ++step;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * step % count * size / count);
  return std::make_shared<Subset>(std::move(data), std::move(indices));
}

std::unique_ptr<Results> evaluate_in_f32(const ModelFile& model, const Dataset& data,
                                         const EvaluateOptions& options) {
  check_float(model);
  return evaluate_task(*make_network(model), in_f32(model), data, options);
}

QuantizedModel quantize_model(const ModelFile& model, const Dataset& calibration, const Dataset& measured,
                              const QuantizeModelOptions& options) {
  ATH_CHECK(options.max_drop >= 0, "quantize: the largest drop must be 0 or more, but is {}",
            options.max_drop);
  const ModelInfo& info = model.info;
  check_images(info, calibration);
  QuantizedModel made;
  EvaluateOptions evaluate = options.evaluate;
  made.before = evaluate_in_f32(model, measured, evaluate);
  evaluate.on_note = {};  // they would be the same
  const Inputs inputs(info, calibration, calibration.size(), evaluate.bad_samples);
  nn::Calibration seen(*make_network(model), sample_of(info));
  Outputs right;
  inputs.for_each([&](const Tensor& images) { right.add(seen.observe(images)); });

  nn::QuantizeOptions how;
  how.choose = [&](const nn::ObservedValue& value) {
    if (value.name == kImages) return nn::min_max_quantizer(value);
    return nn::choose_quantizer(value, options.method, options.percentile);
  };
  how.keep_f32 = options.keep_f32;
  for (;;) {
    made.network = nn::quantize(seen, how);
    made.file = file_of(*made.network, model);
    made.after = evaluate_task(*made.network, made.file, measured, evaluate);
    const double drop = made.before->score() - made.after->score();
    if (!(drop > options.max_drop)) break;
    if (made.layers.empty())
      made.layers =
          errors_of(seen, *made.network, Inputs(info, calibration, kImagesForLayers, evaluate.bad_samples));
    const auto next = made.layers.begin() + std::ssize(made.chosen);
    ATH_CHECK(next != made.layers.end(),
              "quantize: {} must drop by at most {} points, but drops by {:.2f} even with all layers in f32: "
              "{:.2f} % to {:.2f} %",
              made.after->score_name(), options.max_drop, drop, made.before->score(), made.after->score());
    made.chosen.push_back(next->layer);
    how.keep_f32.push_back(next->layer);
  }
  const Outputs found = outputs_of(*made.network, inputs);
  made.agreement = agreement_of(info, found, right);
  made.error = error_of(found, right);
  return made;
}

std::vector<LayerError> layer_errors(const nn::QuantizedNetwork& network, const ModelFile& float_model,
                                     const Dataset& data, const BadSamples& bad) {
  check_float(float_model);
  const Inputs inputs(float_model.info, data, kImagesForLayers, bad);
  nn::Calibration seen(*make_network(float_model), sample_of(float_model.info));
  inputs.for_each([&](const Tensor& images) { seen.observe(images); });
  return errors_of(seen, network, inputs);
}

}  // namespace athanor
