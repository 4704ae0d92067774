#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "nn/module.h"
#include "nn/quantized/graph.h"

// From a network to its graph in f32, and from that to one in 8-bit integers.

namespace athanor::nn::quantized {

inline constexpr const char* kCaller = "quantize";  ///< begins messages
inline constexpr const char* kInput = "input";

/// The ops of a network in f32, in evaluation mode, fused; copies of its weights, on the CPU. Throws as
/// Calibration().
Graph float_graph(Module& network, const Shape& sample);

/// Folds norms into the products before them, adds residual sums and bounds to the ops that can have them,
/// and merges functions of one element.
void fuse(Graph& graph);

/// Whether an op of autograd/ gives each element from those at its place.
bool is_elementwise(std::string_view op);

/// The bounds of a table that only limits its input: a ReLU, a clamp. Null otherwise.
struct Bounds {
  std::optional<double> low, high;
};
std::optional<Bounds> bounds_of(const Op& op);

/// Decides for a fused graph what runs in 8-bit integers, and adds the conversions that this takes. `in_f32`:
/// whether a product stays in f32. Weights, scales and tables in 8-bit integers are new tensors, all zero.
Graph int8_graph(const Graph& graph, const std::function<bool(const Op& product)>& in_f32);

}  // namespace athanor::nn::quantized
