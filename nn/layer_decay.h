#pragma once

#include "nn/module.h"

namespace athanor::nn {

/// Layer-wise decay of learning rates, for fine-tuning: the rate of a model's last layers is the schedule's,
/// that of each block before them `decay` times that of the next one, and that of what is before the first
/// block once more. Blocks are the outermost modules of which the model has several of one type, such as
/// residual blocks; parameters between two blocks have the rate of the earlier one. Call it before an arena
/// takes over the parameters. `decay` in (0, 1]; throws ArgumentError otherwise.
/// Source: Clark et al. 2020, arXiv:2003.10555, appendix A; Bao et al. 2022, arXiv:2106.08254 (BEiT).
void set_layer_decay(Module& model, double decay);

}  // namespace athanor::nn
