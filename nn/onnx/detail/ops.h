#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/activation.h"
#include "nn/onnx/detail/graph.h"

// Which nodes an op of autograd/ becomes: a function for each, in tables by family.

namespace athanor::nn::onnx {

/// Adds an op's nodes and defines its outputs.
using Lower = void (*)(Graph& graph, const Op& op);
using LowerTable = std::map<std::string_view, Lower>;

const LowerTable& elementwise_ops();  ///< unary, binary, compare, where, of a tensor and numbers
const LowerTable& image_ops();        ///< convolutions, pools, interpolation
const LowerTable& norm_ops();
const LowerTable& product_ops();  ///< linear, matmul
const LowerTable& reduce_ops();   ///< with softmax and the largest
const LowerTable& shape_ops();    ///< and those that move elements

// What they share.

/// An op of ATH_UNARY_OPS, "relu" say, of a tensor.
std::string unary(Graph& graph, std::string_view op, const std::string& x);
std::string activated(Graph& graph, std::int64_t activation, const std::string& x);
/// x * scale + shift, without what changes nothing.
std::string scaled(Graph& graph, const std::string& x, double scale, double shift = 0);

/// Operands that broadcast, all in one layout.
struct Operands {
  Layout layout;
  std::vector<std::string> names;
};
/// Images as most of them are there already.
Operands aligned(Graph& graph, std::span<Value* const> values);

inline std::vector<std::int64_t> twice(const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> both = values;
  both.insert(both.end(), values.begin(), values.end());
  return both;
}

}  // namespace athanor::nn::onnx
