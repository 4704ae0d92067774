#pragma once

#include <string>

#include "tensor/tensor.h"

namespace athanor {

/// A tensor with its name in the model: a stable handle. An arena may move its storage and change its dtype;
/// every copy of the handle (a tied weight, a module's member) sees the change.
struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// A trainable tensor of a model.
struct Parameter {
  std::string name;
  Tensor tensor;          ///< a leaf
  bool keep_f32 = false;  ///< stays f32 whatever the compute precision: norms' scale and shift
  bool decay = true;      ///< weight decay applies by default; off for biases and norms of nn
  float lr_scale = 1;     ///< factor of its learning rate, besides its group's
};

}  // namespace athanor
