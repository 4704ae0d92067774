#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/module.h"

namespace athanor::nn {

/// What load_pretrained() did.
struct Pretrained {
  std::int64_t loaded = 0;         ///< number of tensors loaded
  std::vector<std::string> fresh;  ///< the head's parameters, if they kept their values
  std::int64_t classes = 0;        ///< number of classes of the weights, if the head is fresh
  bool other_classes = false;      ///< the head is fresh since the file's classes have other names
  /// Where the weights are in their file, if it holds several: as "state_dict.net", then what was not taken.
  std::vector<std::string> parts;
  bool averaged = false;  ///< the part taken is a running average (EMA) of weights
};

struct PretrainedOptions {
  bool reset_head = false;  ///< the head keeps its values even if the class counts match
  bool averages = true;     ///< of weights and their running average, the average is taken
};

/// Loads all parameters and buffers of an initialised model from `weights`. Layouts may be ours or PyTorch's
/// (has_torch_layout()); names may be ours, which are torchvision's, or timm's (with_our_names()), and those
/// of a part of a larger module (network_within()). The head,
/// the module of the last parameter, keeps its values if `weights` differ in the number of classes (its first
/// dimension) but fit otherwise. Throws ArgumentError naming what does not fit: missing or extra names, other
/// shapes. The model is then unchanged.
Pretrained load_pretrained(Module& model, const StateDict& weights, const PretrainedOptions& options = {});

}  // namespace athanor::nn
