#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/activation.h"
#include "nn/onnx/detail/graph.h"

// Translation of autograd/ ops to nodes: one function per op, in tables by family.

namespace athanor::nn::onnx {

/// Adds an op's nodes and defines its outputs.
using Lower = void (*)(Graph& graph, const Op& op);
using LowerTable = std::map<std::string_view, Lower>;

/// The function of an op, or null if there is none: then a model with the op is refused.
Lower lowering_of(std::string_view op);
/// Adds an op's nodes under the name of its layer. Throws ArgumentError where there is no such function.
void lower(Graph& graph, const Op& op);

const LowerTable& elementwise_ops();  ///< unary, binary, compare, where, scalar
const LowerTable& image_ops();        ///< convolutions, pools, interpolation
const LowerTable& norm_ops();
const LowerTable& product_ops();  ///< linear, matmul
const LowerTable& reduce_ops();   ///< with softmax and maximum
const LowerTable& shape_ops();    ///< and ops that move elements

// Shared by the families.

/// Throws ArgumentError: the op cannot be expressed, with `reason`.
[[noreturn]] void refuse(const Op& op, const std::string& reason);

/// An op of ATH_UNARY_OPS, such as "relu".
std::string unary(Graph& graph, std::string_view op, const std::string& x);
std::string activated(Graph& graph, std::int64_t activation, const std::string& x);
/// x * scale + shift, omitting a scale of 1 and a shift of 0.
std::string scaled(Graph& graph, const std::string& x, double scale, double shift = 0);

/// Operands that broadcast, all in one layout.
struct Operands {
  Layout layout;
  std::vector<std::string> names;
};
/// Uses the layout in which most of the images already exist.
Operands aligned(Graph& graph, std::span<Value* const> values);

inline std::vector<std::int64_t> twice(const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> both = values;
  both.insert(both.end(), values.begin(), values.end());
  return both;
}

}  // namespace athanor::nn::onnx
