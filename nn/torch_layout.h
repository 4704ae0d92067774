#pragma once

#include "nn/module.h"
#include "tensor/state_dict.h"

namespace athanor::nn {

// PyTorch keeps convolution weights as [K, C, R, S], transposed ones as [C, K, R, S], and flattens images as
// C, H, W; we keep [K, R, S, C] and [C, R, S, K], and flatten as H, W, C. What differs in a state is found
// from the modules of the model: the weights of Conv2d and ConvTranspose2d, and the columns of a Linear with
// options().image. Entries the model does not know pass through unchanged.

/// Whether a state has PyTorch's layouts: no filter of the model differs from them in shape, and one differs
/// from ours. A model whose filters look alike in both (1x1 of one channel) has ours.
bool has_torch_layout(const Module& model, const StateDict& state);
/// A state with PyTorch's layouts as a state of `model`; "num_batches_tracked", which we do not count, is
/// left out. Shapes that do not fit are left for load_state_dict() to name.
StateDict from_torch_layout(const Module& model, const StateDict& torch);
/// A state of `model` with PyTorch's layouts, "num_batches_tracked" (0) included.
StateDict to_torch_layout(const Module& model, const StateDict& ours);

}  // namespace athanor::nn
