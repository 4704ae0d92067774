#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/image/transform.h"
#include "data/label_kind.h"
#include "data/preprocess.h"
#include "nn/module.h"
#include "optim/precision.h"
#include "tensor/io/safetensors.h"
#include "tensor/state_dict.h"
#include "trainer/checkpoints/state_file.h"
#include "trainer/test_views.h"

namespace athanor {

/// ModelInfo::quantized of an nn::QuantizedNetwork.
inline constexpr char kInt8[] = "int8";

/// A model file's description of its weights: everything needed to use them.
struct ModelInfo {
  std::string version = {};                   ///< of the library that wrote it; save_model() fills it in
  std::string program = {};                   ///< the training program: "train_mnist"
  std::string model = {};                     ///< a name for nn::make_model(); empty: a custom network
  bool classifies = true;                     ///< its results are logits of one class per image
  LabelKind task = LabelKind::classes;        ///< another: classifies is false
  ImageSpec images = {};                      ///< its input
  std::vector<std::string> class_names = {};  ///< one per class or value; empty if the data set has none
  /// Multilabel, per class: an image has the class if its probability is this or more. Empty: 0.5 each.
  std::vector<double> thresholds = {};
  /// Regression, per value: the training set's mean and deviation. The weights are of (value - mean) / scale;
  /// make_network() returns a network of values.
  std::vector<double> output_mean = {}, output_scale = {};
  Normalization pixels = {};  ///< for bytes / 255
  /// Images of another size are scaled until the shorter side has this many pixels, then centre-cropped; 0:
  /// scaled to cover height x width.
  std::int64_t shorter_side = 0;
  double crop_share = 1;  ///< these four as in ImageTransform
  ResizeMode resize = ResizeMode::crop;
  Resampling interpolation = Resampling::bilinear;
  int padding = kUsualPadding;
  Precision precision = Precision::f32;
  std::int64_t batch_size = 0;      ///< of the validation that gave the figures below, and
  int ranks = 1;                    ///< the number of ranks that shared each of its batches
  std::string conv_choices = {};    ///< of its convolutions, see kernels/conv_choices.h; empty: rules
  TestViews tta = TestViews::none;  ///< of that validation
  std::string weights = {};         ///< which weights: "best val_loss", "running average", "last step"
  double test_loss = 0, test_accuracy = 0;  ///< NaN if not measured
  std::uint64_t weights_hash = 0;
  std::string quantized = {};    ///< kInt8: the weights are those of an nn::QuantizedNetwork; empty: f32
  std::string float_model = {};  ///< of a quantized one: the model.safetensors that it was made of

  bool is_quantized() const { return !quantized.empty(); }
  /// Whether predictions and evaluations know what its results mean. Else: only its program does.
  bool has_known_task() const { return classifies || task != LabelKind::classes; }
  /// The probability from which on an image has the class.
  double threshold_of(std::int64_t index) const {
    return thresholds.empty() ? 0.5 : thresholds.at(static_cast<std::size_t>(index));
  }
};

/// A model saved by a run: weights under their modules' names, f32 unless quantized, and their description.
struct ModelFile {
  std::filesystem::path path;  ///< for messages
  ModelInfo info;
  StateDict weights;
};

/// A description as texts, under the same names in the metadata of every format: model, program, version,
/// image_size ("32x48": height x width), channels, classes, class_names (JSON), pixel_mean and
/// pixel_deviation (JSON), shorter_side, and so on. Some names appear only where they are needed: `resize` is
/// "pad" or "squash", or "cover" if shorter_side is 0, which is then written as the image's own; `crop_share`
/// is not 1; `pad_value` is for "pad"; `interpolation` is not "bilinear"; `class_names_are` is
/// "percent-encoded" if the names are not all UTF-8; `task` is "multilabel" or "regression", with
/// `thresholds`, or `output_mean` and `output_scale` (JSON); `quantized` is "int8", with `float_model`.
safetensors::Metadata description(const ModelInfo& info);
/// "10 classes", "3 labels" or "2 values".
std::string counted_outputs(const ModelInfo& info);
/// How images of another size become ones of the model's.
ImageTransform resizing(const ModelInfo& info);
void set_resizing(ModelInfo& info, const ImageTransform& transform);
/// The description in a file's metadata, or nullopt if there is none. Throws ArgumentError on a damaged one.
std::optional<ModelInfo> described(const safetensors::Metadata& metadata);

/// Writes a model file; `read` as for save_state_file(). Throws IoError naming the file.
void save_model(const std::filesystem::path& path, const ModelInfo& info, const StateDict& weights,
                const dist::ReadTensor& read = dist::read_whole);
/// Reads and fully checks a model file, check_values() included. Throws IoError naming the file and the
/// problem.
ModelFile load_model(const std::filesystem::path& path);

/// The network of a model known to nn::make_model(), with its weights, on the CPU; of values, in their units.
/// Of a quantized model, an nn::QuantizedNetwork.
/// Throws IoError if they do not match that network, ArgumentError if the file has another kind of network.
std::unique_ptr<nn::Module> make_network(const ModelFile& model);

/// A trained model, ready for use.
struct OpenModel {
  ModelFile file;
  std::unique_ptr<nn::Module> network;
};
/// A run's folder, or its model.safetensors. Throws as load_model() and make_network() do.
OpenModel open_model(const std::filesystem::path& given);

/// Throws ArgumentError naming a weight that no trained network has: with NaN or an infinite value (in f32,
/// too), or a `running_var` with a negative one. May be on any device. A counted wait.
void check_values(const StateDict& weights);

}  // namespace athanor
