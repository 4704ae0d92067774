#pragma once

#include "nn/module.h"
#include "nn/torch/weight_parts.h"
#include "tensor/state_dict.h"

namespace athanor::nn {

/// Renames a state of the same network from another library to the names of `model`, which are torchvision's:
///
///   - timm's names, for the networks where they differ: VGG, MobileNetV2 and V3, EfficientNet, ConvNeXt, ViT
///     and RegNet; and those that torchvision's file of DenseNet has. A 1x1 or whole-image convolution that
///     is a linear layer of `model` gets its shape.
///   - prefixes shared by all names but unknown to the model, as wrappers add them: "module." (PyTorch's
///     DistributedDataParallel), "_orig_mod." (torch.compile), "model." or "net." (Lightning); and
///     "n_averaged" of PyTorch's AveragedModel.
///
/// Unknown entries pass through; layouts stay PyTorch's (torch_layout.h). Nothing is copied except strided
/// tensors that change shape.
StateDict with_our_names(const Module& model, const StateDict& state);

/// The entries of `state` that are a network such as `model`, without the prefix of their names, if the state
/// is that of a larger module: a LightningModule with the network as "net." beside its loss or metrics, or
/// beside a running average of the network ("ema.module."). Of several networks, an average is taken, or with
/// `averages` = false one that is none; of these the first. `parts` are then the prefix taken and all others,
/// if there are any. Any other state is returned as it is.
StateDict network_within(const Module& model, const StateDict& state, bool averages, WeightParts& parts);

}  // namespace athanor::nn
