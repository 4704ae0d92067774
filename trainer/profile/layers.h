#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "tensor/shape.h"

namespace athanor {

/// The result and cost of one op of a forward pass.
struct Layer {
  std::string name;  ///< module whose parameters it reads: "layer1.0.conv1"; empty: none
  std::string op;    ///< "conv2d"
  Shape output;
  std::int64_t parameters = 0;        ///< of the module, at its first op
  std::int64_t flops = 0;             ///< two per multiply-add of convolutions and matrix products, else 0
  std::int64_t activation_bytes = 0;  ///< of its result; 0 for a view
};

/// The ops that `forward` calls, in order, attributed by the parameters of `network` they read. Gradients are
/// not recorded. If it throws an Error, returns the ops before it.
std::vector<Layer> trace_layers(const nn::Module& network, const std::function<void()>& forward);

/// A readable table with totals. `parameters`: total number in the networks.
std::string table_of(const std::vector<Layer>& layers, std::int64_t parameters);

}  // namespace athanor
