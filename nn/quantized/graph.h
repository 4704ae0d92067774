#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/conv.h"
#include "kernels/int8.h"
#include "kernels/pool.h"
#include "tensor/tensor.h"

// A network as a list of ops on values, with batch norms folded into their convolutions: what a calibration
// runs in f32, what a QuantizedNetwork runs in 8-bit integers, and what an export reads.

namespace athanor::nn::quantized {

/// The sizes of a value, which may grow with the batch.
struct BatchShape {
  Shape one;                ///< for one image: [1, H, W, C]
  std::uint32_t grows = 0;  ///< has a bit for each axis whose size is that of `one` times N

  Shape of(std::int64_t images) const;
  bool operator==(const BatchShape&) const = default;
};

/// How u8 values are stored, by quantizer_of(). Values that an op moves unchanged share one.
struct StoredQuantizer {
  std::string name;    ///< of the first value that has it
  Tensor scale, zero;  ///< [] f32 and [] u8
};

struct Value {
  std::string name;  ///< of the op that computes it, "input" for the images
  BatchShape shape;
  DType dtype = DType::f32;  ///< or u8
  int quantizer = -1;        ///< of a u8 value: its place in Graph::quantizers
};

/// A number or list of numbers of a traced op, such as its axis.
struct Attribute {
  std::string name;
  std::vector<double> values;
};

/// What a Call reads.
struct Operand {
  enum class From : std::uint8_t { none, input, constant, call };
  From from = From::none;  ///< none: an omitted operand
  int index = 0;           ///< in Op::inputs, Op::constants, or Op::calls
};

/// A call of an op of autograd/, to be repeated on other tensors.
struct Call {
  std::string op;  ///< as the trace names it: "hardswish"
  std::vector<Attribute> attributes;
  std::vector<Operand> operands;
  BatchShape result;
  DType dtype = DType::f32;  ///< of the result
};

/// A tensor that a Call reads and that does not depend on the images.
struct Constant {
  std::string name;  ///< in state_dict()
  Tensor value;      ///< for one image
  BatchShape shape;
};

/// How an op is computed.
enum class OpKind : std::uint8_t {
  quantize,    ///< f32 to u8
  dequantize,  ///< u8 to f32
  product,     ///< clamp(conv2d(x, weight) + bias + inputs[1]), also of linear layers and lone batch norms
  max_pool,
  avg_pool,  ///< the mean of windows that lie within x, of one size; u8 [N, H, W, C] to [N, P, Q, C]
  add,       ///< of two tensors of one shape
  multiply,  ///< inputs[0] [N, H, W, C] times inputs[1] [N, 1, 1, C]
  table,     ///< any function of one element
  view,      ///< moves elements unchanged: reshape, permute, narrow, cat
  real,      ///< any op of autograd/, in f32
};
/// "product"
std::string_view name_of(OpKind kind);

struct Op {
  OpKind kind = OpKind::real;
  std::string name = {};         ///< unique; of a product its layer's: "layer1.0.conv1"
  std::vector<int> inputs = {};  ///< places in Graph::values; of a product x and, if it is added, a residual
  int output = -1;               ///< place in Graph::values

  /// Bounds of the result, as numbers: a ReLU's is low = 0, a ReLU6's also high = 6. Of products, pools, sums
  /// and gates.
  std::optional<double> low = {}, high = {};

  // Of a product. x of a linear layer is taken as [rows, 1, 1, C].
  Conv2dParams conv = {};    ///< stride, padding, dilation, groups
  bool linear = false;       ///< acts on the last axis of x, whatever its rank
  Tensor weight = {};        ///< [K, R, S, C / groups], i8, or f32 if the product runs in f32
  Tensor weight_scale = {};  ///< [K] f32, if weight is i8: a weight is weight_scale[k] weight[k][...]
  Tensor bias = {};          ///< [K] f32, not in units of the products

  Pool2dParams pool = {};  ///< of pools
  Tensor table = {};       ///< [256] u8, if a table reads and writes u8: y = table[x]

  /// What computes the op in f32, in order, the last call giving its output: of every kind but products,
  /// quantize and dequantize. Bounds are not among the calls.
  std::vector<Call> calls = {};
  std::vector<Constant> constants = {};

  bool in_int8() const { return kind == OpKind::product && weight.dtype() == DType::i8; }
};

struct Graph {
  std::vector<Value> values;
  std::vector<StoredQuantizer> quantizers;
  std::vector<Op> ops;  ///< in an order in which they can run
  int input = -1, output = -1;

  const Op* op_named(std::string_view name) const;
  /// One op per line: "conv1: product(input:u8, 6 x 5 x 5 x 1) -> u8 [N, 28, 28, 6], low 0".
  std::string str() const;
};

/// Reads its values. A counted wait on a device.
Quantizer quantizer_of(const Graph& graph, const Value& value);

/// round(bias / (x_scale weight_scale)) - x.zero times the sum of the channel's weights, i32 [K]: the bias as
/// kernels/int8.h takes it. Of a product in 8-bit integers; on the CPU. Throws ArgumentError if a sum of
/// products may not fit an i32.
Tensor integer_bias(const Op& product, const Quantizer& x);

}  // namespace athanor::nn::quantized
