#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "nn/module.h"
#include "trainer/inference/model_file.h"

namespace athanor {

/// The most probable classes of images, the most probable first; of equal ones the lower index.
struct Predictions {
  Tensor classes;        ///< [N, top] i64, on the CPU
  Tensor probabilities;  ///< [N, top] f32, on the CPU
};

/// A trained classifier, ready to be asked by any number of threads at once.
///
///     const Predictor predictor("runs/train_mnist/latest");
///     const Predictions found = predictor.predict(images);  // u8 [N, H, W, C], of any size
///     fmt::print("{}", predictor.class_name(found.classes.data<std::int64_t>()[0]));
///
/// All calls are const. The weights never change, are packed as pack_weights() says (nn/module.h), and all
/// threads read the same ones. What a call works in (oneDNN's primitives, a decoder of images) comes from a
/// pool that grows to as many as there are calls at once. A call uses as many threads as its caller:
/// cpu_context().set_threads(1) for whoever answers several calls at once. A call for as many images as one
/// before it, on a thread that has made one, calls no operator new and compiles no primitive.
class Predictor {
 public:
  /// A run's folder, or its model.safetensors. Throws IoError, naming the file, on one that cannot be used,
  /// and where a weight is infinite or NaN; ArgumentError on a network that nn::make_model() does not know.
  explicit Predictor(const std::filesystem::path& model, Device device = kCpu);
  /// A network with its values, on whatever device they are, and what `info` says of it: images, pixels,
  /// class_names and shorter_side. Throws ArgumentError where those do not fit together, and where a weight
  /// is infinite or NaN.
  Predictor(std::unique_ptr<nn::Module> network, ModelInfo info);
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  const ModelInfo& info() const;
  /// Its name, or its number where classes have no names. Throws ArgumentError outside [0, classes).
  std::string class_name(std::int64_t index) const;

  /// images [N, H, W, C], dense: u8 of the model's size, taken as they are; u8 of another size, scaled and
  /// cut as its run did for validation, with 1 or 3 channels where the model has 3 or 1; or f32 of the
  /// model's size, already normalised. N >= 1; top in [1, classes]. Throws ArgumentError. On a device a
  /// counted wait.
  Predictions predict(const Tensor& images, std::int64_t top = 1) const;
  /// Of N files, each the bytes of a JPEG, PNG or WebP. Throws IoError that names the number of the file.
  Predictions predict(std::span<const std::span<const std::byte>> files, std::int64_t top = 1) const;
  /// The network's own results, [N, classes] f32 on its device; in InferenceMode.
  Tensor logits(const Tensor& images) const;

  /// Decodes a JPEG, PNG or WebP to the model's size: writes height x width x channels bytes to `pixels`. For
  /// who collects a batch image by image. Throws IoError that does not name the file.
  void read(std::span<const std::byte> file, std::span<std::uint8_t> pixels) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace athanor
