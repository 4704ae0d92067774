#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"
#include "trainer/inference/model_file.h"

namespace athanor {

/// What a model says of images. Of a classifier: the `top` most probable classes. Of a model of several
/// labels: all, each with a probability of its own. Both in descending order; ties by lower index. Of a model
/// of numbers: all, in the model's order.
struct Predictions {
  Tensor classes;        ///< [N, top] i64, on the CPU
  Tensor probabilities;  ///< [N, top] f32, on the CPU; or numbers, in their units
};

/// A class that an image may be of, or a number.
struct Guess {
  std::string name;  ///< as class_name() gives it
  std::int64_t index = 0;
  float probability = 0;  ///< or the number
  bool present = false;   ///< of several labels: whether the image has it, by ModelInfo::thresholds
};

/// Why predictions in that precision are no faster than in f32 on that device: "this CPU does not multiply
/// bf16: ..."; empty if they may be.
std::string no_faster_than_f32(Precision precision, Device device);

/// A trained model for concurrent use by any number of threads.
///
///     const Predictor predictor("runs/train_mnist/latest");
///     const Predictions found = predictor.predict(images);  // u8 [N, H, W, C], of any size
///     fmt::print("{}", predictor.class_name(found.classes.data<std::int64_t>()[0]));
///
/// All calls are const. Weights never change, are packed (autograd/packed_model.h), and are shared by all
/// threads. A call's working state (oneDNN primitives, an image decoder) comes from a pool that grows to
/// the number of concurrent calls. A call uses its caller's number of threads: set
/// cpu_context().set_threads(1) to answer several calls concurrently. On the CPU, a large batch is computed
/// in parts whose activations stay in the cores' caches (trainer/inference/batch_parts.h). A repeated call
/// with the same number of images, on a thread that has made one, calls no operator new and compiles no
/// primitive.
class Predictor {
 public:
  /// A run's folder, or its model.safetensors. Throws IoError, naming the file, if load_model() does or the
  /// weights do not fit; ArgumentError on a network unknown to nn::make_model().
  /// Predicts by the mean logits of `tta`. In bf16 or f16, images, weights and activations are rounded, sums,
  /// biases and norms are f32; weights are rounded once, with norms folded in where the CPU has code for
  /// that. Numbers are scaled to their units in f32.
  explicit Predictor(const std::filesystem::path& model, Device device = kCpu,
                     TestViews tta = TestViews::none, Precision precision = Precision::f32);
  /// A network with values, on any device, and its description in `info`: images, pixels, class_names and
  /// resizing(). Throws ArgumentError if these do not match, or check_values() does.
  Predictor(std::unique_ptr<nn::Module> network, ModelInfo info, Precision precision = Precision::f32);
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  const ModelInfo& info() const;
  /// What it computes in; info().precision is that of its training.
  Precision precision() const;
  /// The name of a class or number, or its index without names. Throws ArgumentError outside [0, classes).
  std::string class_name(std::int64_t index) const;

  /// images [N, H, W, C], dense. u8 of the model's size is used unchanged; u8 of another size is scaled and
  /// cropped as in its run's validation, with 1 or 3 channels if the model has 3 or 1; f32 must have the
  /// model's size and be normalised. N >= 1; top in [1, classes]. Throws ArgumentError. On a device a counted
  /// wait.
  Predictions predict(const Tensor& images, std::int64_t top = 1) const;
  /// For N files, each the bytes of a JPEG, PNG or WebP. Throws IoError naming the file's index.
  Predictions predict(std::span<const std::span<const std::byte>> files, std::int64_t top = 1) const;
  /// The `count` most probable classes of one of the images, or all that were predicted if these are fewer,
  /// or the model does not classify.
  std::vector<Guess> guesses(const Predictions& found, std::int64_t image, std::int64_t count) const;
  /// The network's output, averaged over views, [N, classes] f32 on its device; in InferenceMode.
  Tensor logits(const Tensor& images) const;

  /// predict() in two steps, for callers that want more of it. What logits() returned as probabilities: of a
  /// class by softmax, of each label by a sigmoid; numbers unchanged. logits [N, classes] f32; returns the
  /// same on the CPU. Throws ArgumentError on another shape.
  Tensor probabilities(const Tensor& logits) const;
  /// Of these, those that predict() returns. top as there.
  Predictions most_probable(const Tensor& probabilities, std::int64_t top = 1) const;

  /// Decodes a JPEG, PNG or WebP to the model's size: writes height x width x channels bytes to `pixels`. For
  /// callers that assemble a batch image by image. Throws IoError without naming the file.
  void read(std::span<const std::byte> file, std::span<std::uint8_t> pixels) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor
