#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "nn/module.h"
#include "tensor/shape.h"

namespace athanor {

/// What one op of a forward pass makes, and what it costs.
struct Layer {
  std::string name;  ///< the module whose parameters it reads, dotted: "layer1.0.conv1"; empty: it reads none
  std::string op;    ///< "conv2d"
  Shape output;
  std::int64_t parameters = 0;  ///< of the module, where it comes first
  std::int64_t flops = 0;       ///< two for each multiply-add of convolutions and matrix products, else 0
  std::int64_t activation_bytes = 0;  ///< of what it makes; 0 for a view
};

/// The ops that `forward` calls, in order, by the parameters of `network` they read. Nothing is recorded for
/// gradients. Where it throws an Error, those before.
std::vector<Layer> trace_layers(const nn::Module& network, const std::function<void()>& forward);

/// A table of them with totals, for the eye. `parameters` are all that the networks have.
std::string table_of(const std::vector<Layer>& layers, std::int64_t parameters);

}  // namespace athanor
