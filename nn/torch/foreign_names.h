#pragma once

#include "nn/module.h"
#include "tensor/state_dict.h"

namespace athanor::nn {

/// Renames a state of the same network from another library to the names of `model`, which are torchvision's:
///
///   - timm's names, for the networks where they differ: VGG, MobileNetV2 and V3, EfficientNet, ConvNeXt and
///     ViT. A 1x1 or whole-image convolution that is a linear layer of `model` gets its shape.
///   - prefixes shared by all names but unknown to the model, as wrappers add them: "module." (PyTorch's
///     DistributedDataParallel), "_orig_mod." (torch.compile), "model." or "net." (Lightning); and
///     "n_averaged" of PyTorch's AveragedModel.
///
/// Unknown entries pass through; layouts stay PyTorch's (torch_layout.h). Nothing is copied except strided
/// tensors that change shape.
StateDict with_our_names(const Module& model, const StateDict& state);

}  // namespace athanor::nn
