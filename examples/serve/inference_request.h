#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/dataset.h"
#include "data/label_kind.h"

// Requests of the Open Inference Protocol, version 2, which KServe and Triton speak: their text alone,
// without HTTP or a model. Source: https://github.com/kserve/open-inference-protocol; binary tensors,
// classification and timeout as in Triton's extensions of it.

namespace athanor::serve {

/// What a request has of each image.
enum class ImageKind : std::uint8_t {
  file,   ///< BYTES: a JPEG, PNG or WebP
  bytes,  ///< UINT8 [H, W, C]: pixels of the model's size
  floats  ///< FP32 [H, W, C]: normalised pixels of the model's size
};

/// A tensor that a model returns: [N, K] with K the model's classes, or [N].
struct OutputKind {
  enum What : std::uint8_t { logits, probabilities, classes, labels, values };
  What what;
  const char* name;
  const char* datatype;
  bool per_class;  ///< [N, K], else [N]
};

/// The outputs of a model: of a classifier logits, probabilities, and the most probable class of each image;
/// of several labels logits, probabilities, and which labels an image has; else numbers.
std::span<const OutputKind> outputs_of(LabelKind task);

/// An output as a client asks for it.
struct WantedOutput {
  const OutputKind* kind = nullptr;
  bool binary = false;              ///< after the JSON, else inside
  std::int64_t classification = 0;  ///< as so many texts "value:index:class", largest first; 0: as numbers
};

/// POST /v2/models/NAME/infer.
struct InferenceRequest {
  std::optional<std::string> id = {};                     ///< to be repeated in the answer
  std::optional<std::chrono::microseconds> timeout = {};  ///< for the answer
  ImageKind kind = ImageKind::bytes;
  std::vector<std::string_view> images = {};     ///< one or more; into the body, or into `data`
  std::shared_ptr<const std::string> data = {};  ///< of a tensor that was JSON; else null
  std::vector<WantedOutput> outputs = {};
};

/// What a request must fit.
struct InferenceLimits {
  ImageSpec images;  ///< of the model
  LabelKind task = LabelKind::classes;
  std::int64_t most = 1;  ///< images in a request
};

/// The body of a request: JSON, or JSON in its first `json_bytes` bytes and tensors after them, as the header
/// Inference-Header-Content-Length says. In JSON, a file is in base64. Takes memory in proportion to the body
/// alone. Throws ArgumentError, naming the field.
InferenceRequest parse_inference_request(std::string_view body, std::optional<std::uint64_t> json_bytes,
                                         const InferenceLimits& limits);

}  // namespace athanor::serve
