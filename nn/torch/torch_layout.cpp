#include "nn/torch/torch_layout.h"

#include <map>

#include "autograd/shape.h"
#include "nn/batch_norm.h"
#include "nn/conv2d.h"
#include "nn/conv_transpose2d.h"
#include "nn/linear.h"

namespace athanor::nn {
namespace {

constexpr std::string_view kBatchCount = "num_batches_tracked";

std::string member(const NamedModule& module, std::string_view name) {
  return module.name.empty() ? std::string(name) : fmt::format("{}.{}", module.name, name);
}

// The parameters with different layouts: a convolution weight as [K, R, S, C] (a transposed one's as [C, R,
// S, K]), the columns of a linear one as [N, H, W, C].
std::map<std::string, Shape> images_of(const Module& model) {
  std::map<std::string, Shape> images;
  for (const NamedModule& module : model.modules()) {
    if (const auto* conv = dynamic_cast<const Conv2d*>(module.module)) {
      images.emplace(member(module, "weight"), conv->weight().shape());
    } else if (const auto* transposed = dynamic_cast<const ConvTranspose2d*>(module.module)) {
      images.emplace(member(module, "weight"), transposed->weight().shape());
    } else if (const auto* linear = dynamic_cast<const Linear*>(module.module)) {
      const FlattenedImage& image = linear->options().image;
      if (image.channels > 0)
        images.emplace(member(module, "weight"),
                       Shape{linear->weight().dim(0), image.height, image.width, image.channels});
    }
  }
  return images;
}

// [A, R, S, C] as [A, C, R, S]; rank 2 where x has it.
Tensor channels_first(const Tensor& x, const Shape& image) {
  const std::int64_t a = image[0], r = image[1], s = image[2], c = image[3];
  const Tensor view = x.detach().view_as_strided({a, c, r, s}, {r * s * c, 1, s * c, c}, 0);
  return reshape(clone(view), x.rank() == 2 ? x.shape() : view.shape());
}

// [A, C, R, S] as [A, R, S, C].
Tensor channels_last(const Tensor& x, const Shape& image) {
  const std::int64_t a = image[0], r = image[1], s = image[2], c = image[3];
  const Tensor view = x.detach().view_as_strided({a, r, s, c}, {c * r * s, s, 1, r * s}, 0);
  return reshape(clone(view), x.rank() == 2 ? x.shape() : view.shape());
}

Shape channels_first(const Shape& image) {
  return {image[0], image[3], image[1], image[2]};
}

}  // namespace

bool has_torch_layout(const Module& model, const StateDict& state) {
  bool differs = false;
  for (const auto& [name, ours] : images_of(model)) {
    const StateDict::Value* value = state.find(name);
    const Tensor* tensor = value ? std::get_if<Tensor>(value) : nullptr;
    if (!tensor || tensor->rank() != 4) continue;
    if (tensor->shape() != channels_first(ours)) return false;
    differs = differs || tensor->shape() != ours;
  }
  return differs;
}

StateDict from_torch_layout(const Module& model, const StateDict& torch) {
  const std::map<std::string, Shape> images = images_of(model);
  StateDict ours;
  for (const StateDict::Entry& entry : torch) {
    if (entry.name == kBatchCount || entry.name.ends_with(fmt::format(".{}", kBatchCount))) continue;
    const auto image = images.find(entry.name);
    const Tensor* tensor = std::get_if<Tensor>(&entry.value);
    if (image == images.end() || !tensor) {
      ours.set(entry.name, entry.value);
      continue;
    }
    const Shape& to = image->second;
    const bool fits = tensor->rank() == 2 ? tensor->shape() == Shape{to[0], to[1] * to[2] * to[3]}
                                          : tensor->shape() == channels_first(to);
    const Tensor source = contiguous(tensor->detach());
    ours.set(entry.name, fits ? channels_last(source, to) : source);
  }
  return ours;
}

StateDict to_torch_layout(const Module& model, const StateDict& ours) {
  const std::map<std::string, Shape> images = images_of(model);
  StateDict torch;
  for (const StateDict::Entry& entry : ours) {
    const auto image = images.find(entry.name);
    const Tensor* tensor = std::get_if<Tensor>(&entry.value);
    if (image == images.end() || !tensor) {
      torch.set(entry.name, entry.value);
    } else {
      ATH_CHECK(tensor->numel() == image->second.numel() && tensor->is_contiguous(),
                "to_torch_layout: '{}' must be dense with {} elements, but has shape {}", entry.name,
                image->second.numel(), tensor->shape());
      torch.set(entry.name, channels_first(*tensor, image->second));
    }
  }
  for (const NamedModule& module : model.modules()) {
    if (dynamic_cast<const BatchNorm*>(module.module))
      torch.set(member(module, kBatchCount), Tensor::zeros({}, {DType::i64, kCpu}));
  }
  return torch;
}

}  // namespace athanor::nn
