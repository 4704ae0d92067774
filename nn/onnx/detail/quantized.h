#pragma once

#include <deque>
#include <vector>

#include "nn/onnx/detail/graph.h"
#include "nn/quantized/graph.h"

namespace athanor::nn::onnx {

/// A quantized network as values and nodes: what runs in 8-bit integers runs in f32 here, between
/// DequantizeLinear nodes of what it reads and a QuantizeLinear node of its result, which a runtime fuses.
class QuantizedProgram {
 public:
  explicit QuantizedProgram(const quantized::Graph& network);
  QuantizedProgram(const QuantizedProgram&) = delete;
  QuantizedProgram& operator=(const QuantizedProgram&) = delete;

  Value& input() { return at(network_.input); }
  Value& output() { return at(network_.output); }
  /// Adds the nodes of all ops.
  void lower(Graph& graph);

 private:
  struct Quantizers;

  Value& at(int value) { return *values_.at(static_cast<std::size_t>(value)); }
  const quantized::Value& stored(int value) const { return network_.values[static_cast<std::size_t>(value)]; }
  Value& new_value(const quantized::BatchShape& shape, DType dtype);
  Value& constant(const quantized::Constant& constant);

  void lower(Graph& graph, const quantized::Op& op);
  void lower_calls(Graph& graph, const quantized::Op& op, Value& result);
  void lower_product(Graph& graph, const quantized::Op& op, Value& result);
  /// Bounds a result, and makes it u8 and f32 again where it is stored so.
  void finish(Graph& graph, const quantized::Op& op, Value& result);
  std::string stored_as(Graph& graph, const std::string& x, const quantized::Value& value);
  std::vector<std::string> factors(Graph& graph, const quantized::Op& op, const Tensor& weight, int channels);

  const quantized::Graph& network_;
  std::deque<Value> all_;
  std::vector<Value*> values_;  ///< of the network's: in f32, whatever their dtype
  std::deque<TracedOp> calls_;
  std::deque<Op> ops_;
  std::vector<std::vector<std::string>> quantizers_;  ///< names of the scale and the zero
};

}  // namespace athanor::nn::onnx
