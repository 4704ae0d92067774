#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

/// What load_pretrained() did.
struct Pretrained {
  std::int64_t loaded = 0;         ///< tensors taken over
  std::vector<std::string> fresh;  ///< the head's parameters, where they are as they were
  std::int64_t classes = 0;        ///< of the weights, where the head is fresh
};

struct PretrainedOptions {
  bool reset_head = false;  ///< the head keeps its own values where classes are equal, too
};

/// Fills a model that has values with others' of the same names: all its parameters and buffers, in our
/// layouts or PyTorch's (has_torch_layout()), under our names, which are torchvision's, or timm's
/// (with_our_names()). The last layer (the head: the module of the last parameter) keeps its own where
/// `weights` have another number of classes, its parameters' first dimension, and fit otherwise. Throws
/// ArgumentError naming what does not fit: a name too few or too many, another shape. Then nothing has
/// changed.
Pretrained load_pretrained(Module& model, const StateDict& weights, const PretrainedOptions& options = {});

}  // namespace athanor::nn
