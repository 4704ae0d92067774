#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "nn/quantized/choose.h"
#include "nn/quantized/quantized_network.h"
#include "trainer/inference/evaluate.h"
#include "trainer/inference/model_file.h"

namespace athanor {

/// The usual number of images to calibrate with.
inline constexpr std::int64_t kCalibrationImages = 512;
/// The usual limit of what a quantized model may lose, in points of Results::score().
inline constexpr double kUsualMaxDrop = 1;

/// `count` images of a data set, or all, spread evenly over it; so are the first few of them. Throws
/// ArgumentError unless count >= 1.
std::shared_ptr<const Dataset> spread_over(std::shared_ptr<const Dataset> data, std::int64_t count);

/// The results of a float model in f32, whatever its run's precision: those that a quantized one is compared
/// with. Throws ArgumentError on a quantized model, and as evaluate_task().
std::unique_ptr<Results> evaluate_in_f32(const ModelFile& model, const Dataset& data,
                                         const EvaluateOptions& options = {});

/// A layer that computes in 8-bit integers while all others compute in f32, what it reads and writes stored
/// as in the whole network: how far that takes the results from those of the float network. The root mean
/// square of their differences, divided by the standard deviation of the float network's results, each around
/// the mean of its output, or by a thousandth of their root mean square if that is more: 0.01 is one percent.
struct LayerError {
  std::string layer;
  double error = 0;
};

struct QuantizeModelOptions {
  nn::QuantizerMethod method = nn::QuantizerMethod::percentile;
  double percentile = nn::kUsualPercentile;
  std::vector<std::string> keep_f32 = {};  ///< layers; more may be kept, see quantize_model()
  double max_drop = kUsualMaxDrop;         ///< >= 0
  EvaluateOptions evaluate = {};           ///< how the loss of accuracy is measured
};

/// A model in 8-bit integers, and what it loses.
struct QuantizedModel {
  ModelFile file;  ///< as save_model() takes it; its path is that of the float model
  std::unique_ptr<nn::QuantizedNetwork> network;
  double agreement = 0;  ///< share of the calibration's images for which both say the same; NaN of numbers
  double error = 0;      ///< as LayerError::error, of all layers together
  std::vector<LayerError> layers = {};     ///< in descending order; empty if none had to be chosen
  std::vector<std::string> chosen = {};    ///< the layers kept in f32 because of it
  std::unique_ptr<Results> before, after;  ///< of the float model, and of this one, on `measured`
};

/// Makes a model of 8-bit integers of a float model.
///
/// `calibration` gives the ranges of activations, by `method`, and of the images, from their smallest to
/// their largest number; and the means by which biases are corrected. Then the accuracy is measured on
/// `measured`. If it is more than max_drop points lower than the float model's, each layer's error is
/// measured on the first 64 images of `calibration`, and the layer with the largest error stays in f32; so on
/// with the next one until the drop is at most max_drop. The first and the last layer are treated as all
/// others.
///
/// Throws ArgumentError on a quantized model, on images that do not match it (as evaluate() does), on a layer
/// that does not exist, naming the nearest, and if the drop is larger even with all layers in f32.
QuantizedModel quantize_model(const ModelFile& model, const Dataset& calibration, const Dataset& measured,
                              const QuantizeModelOptions& options = {});

/// The error of each layer of a quantized model that is in 8-bit integers, in descending order; on the first
/// 64 images of `data`; `bad`: what becomes of those that cannot be read. `float_model`: what it was made of.
/// Throws ArgumentError if they do not match.
std::vector<LayerError> layer_errors(const nn::QuantizedNetwork& network, const ModelFile& float_model,
                                     const Dataset& data, const BadSamples& bad = {});

}  // namespace athanor
