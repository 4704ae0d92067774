#include <cmath>
#include <cstring>
#include <functional>

#include "examples/serve/inference_request.h"
#include "fuzz.h"

// Requests of the Open Inference Protocol, as JSON alone and with binary tensors: each is refused in one
// line, or has images of the model's size that lie in the request.

using namespace athanor;
using namespace athanor::serve;

namespace {

constexpr InferenceLimits kLimits[] = {{{2, 3, 1, 4}, LabelKind::classes, 4},
                                       {{1, 1, 3, 2}, LabelKind::multilabel, 2},
                                       {{1, 2, 1, 1}, LabelKind::values, 1}};

void need(bool condition) {
  if (!condition) std::abort();
}

bool lies_in(std::string_view part, std::string_view whole) {
  const std::less_equal<const char*> before;
  return part.empty() || (before(whole.data(), part.data()) &&
                          before(part.data() + part.size(), whole.data() + whole.size()));
}

void read(std::string_view body, std::optional<std::uint64_t> json_bytes, const InferenceLimits& limits) {
  try {
    const InferenceRequest found = parse_inference_request(body, json_bytes, limits);
    need(!found.images.empty() && std::ssize(found.images) <= limits.most);
    const std::string_view memory = found.data ? std::string_view(*found.data) : body;
    const std::int64_t element = found.kind == ImageKind::floats ? 4 : 1;
    for (const std::string_view image : found.images) {
      need(lies_in(image, memory));
      if (found.kind != ImageKind::file) need(std::ssize(image) == element * limits.images.bytes());
      for (std::size_t at = 0; found.kind == ImageKind::floats && at < image.size(); at += 4) {
        float value = 0;
        std::memcpy(&value, image.data() + at, 4);
        need(std::isfinite(value));
      }
    }
    need(!found.outputs.empty() && found.outputs.size() <= outputs_of(limits.task).size());
    for (const WantedOutput& output : found.outputs)
      need(output.kind && output.classification >= 0 && output.classification <= limits.images.classes);
  } catch (const ArgumentError& error) {
    need(std::string_view(error.what()).find('\n') == std::string_view::npos);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const InferenceLimits& limits = kLimits[data[0] % 3];
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  if (data[0] < 128) {
    read(bytes, std::nullopt, limits);
  } else {
    const std::vector<std::string_view> parts = fuzz::split_parts(bytes, 2);
    read(std::string(parts[0]) + std::string(parts[1]), parts[0].size(), limits);
  }
  return 0;
}
