#pragma once

#include "nn/module.h"
#include "tensor/state_dict.h"

namespace athanor::nn {

/// A state of the same network by another library, under the names of `model`, which are torchvision's:
///
///   - timm's names of the networks whose names differ: VGG, MobileNetV2 and V3, EfficientNet, ConvNeXt and
///     ViT. A 1x1 or whole-image convolution that is a linear layer of `model` gets its shape.
///   - prefixes that all names have, and none of the model: "module." (PyTorch's DistributedDataParallel),
///     "_orig_mod." (torch.compile), "model." (Lightning).
///
/// Entries it does not know pass through; layouts stay PyTorch's (torch_layout.h). Nothing is copied, but
/// strided tensors that get another shape.
StateDict with_our_names(const Module& model, const StateDict& state);

}  // namespace athanor::nn
