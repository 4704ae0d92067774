#pragma once

#include "nn/module.h"
#include "tensor/state_dict.h"

namespace athanor::nn {

// PyTorch stores convolution weights as [K, C, R, S], transposed ones as [C, K, R, S], and flattens images as
// C, H, W. We store [K, R, S, C] and [C, R, S, K], and flatten as H, W, C. The modules of the model tell
// which entries differ: weights of Conv2d and ConvTranspose2d, and columns of a Linear with options().image.
// Entries unknown to the model pass through unchanged.

/// Whether a state has PyTorch's layouts: all filters have PyTorch's shapes, and at least one does not have
/// ours. If the filters fit both layouts (1x1 of one channel), they count as ours.
bool has_torch_layout(const Module& model, const StateDict& state);
/// Converts a state with PyTorch's layouts to a state of `model`, without "num_batches_tracked", which we do
/// not count. load_state_dict() reports shapes that do not fit.
StateDict from_torch_layout(const Module& model, const StateDict& torch);
/// Converts a state of `model` to PyTorch's layouts, including "num_batches_tracked" (0).
StateDict to_torch_layout(const Module& model, const StateDict& ours);

}  // namespace athanor::nn
