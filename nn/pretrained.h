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
  std::vector<std::string> parts;  ///< of torch_file::load(), if the weights are from such a file
};

struct PretrainedOptions {
  bool reset_head = false;  ///< the head keeps its values even if the class counts match
};

/// Loads all parameters and buffers of an initialised model from `weights`. Layouts may be ours or PyTorch's
/// (has_torch_layout()); names may be ours, which are torchvision's, or timm's (with_our_names()). The head,
/// the module of the last parameter, keeps its values if `weights` differ in the number of classes (its first
/// dimension) but fit otherwise. Throws ArgumentError naming what does not fit: missing or extra names, other
/// shapes. The model is then unchanged.
Pretrained load_pretrained(Module& model, const StateDict& weights, const PretrainedOptions& options = {});

}  // namespace athanor::nn
