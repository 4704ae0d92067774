#include <algorithm>
#include <numeric>
#include <set>

#include "nn/quantized/detail/build.h"
#include "nn/quantized/detail/index.h"

namespace athanor::nn::quantized {
namespace {

// What runs in 8-bit integers: every product but those kept in f32, and other ops that have 8-bit code where
// their operands exist as u8 anyway: computed by one that does, or read by a product that does. So the
// residual stream of a transformer, which norms and sums alone read, stays f32, and that of a ResNet is u8.
// What only ops in f32 read is not rounded first: a product before them writes f32, and sums, tables and
// views of its result run in f32.

/// The decisions for a graph in f32.
struct Placement {
  std::vector<bool> int8;      // by op
  std::vector<bool> needs_u8;  // by value
  std::vector<bool> splits;    // by op: its residual is added in f32, as an op of its own

  Placement(const Graph& graph, const std::function<bool(const Op&)>& in_f32);

 private:
  void choose(const Graph& graph, const std::function<bool(const Op&)>& in_f32);
  void withdraw(const Graph& graph);
};

bool has_int8_code(OpKind kind) {
  return kind != OpKind::real && kind != OpKind::quantize && kind != OpKind::dequantize;
}

Placement::Placement(const Graph& graph, const std::function<bool(const Op&)>& in_f32)
    : int8(graph.ops.size()), needs_u8(graph.values.size()), splits(graph.ops.size()) {
  choose(graph, in_f32);
  withdraw(graph);
}

void Placement::choose(const Graph& graph, const std::function<bool(const Op&)>& in_f32) {
  std::vector<bool> computed(graph.values.size()), there(graph.values.size());
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    int8[i] = op.kind == OpKind::product && !in_f32(op);
    if (int8[i]) there[at(op.inputs[0])] = true;
  }
  for (std::size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const auto is_there = [&](int value) { return there[at(value)]; };
    if (op.kind == OpKind::product) {
      splits[i] = int8[i] && op.inputs.size() > 1 && !is_there(op.inputs[1]);
    } else {
      int8[i] =
          has_int8_code(op.kind) && std::all_of(op.inputs.begin(), op.inputs.end(), is_there) &&
          std::any_of(op.inputs.begin(), op.inputs.end(), [&](int value) { return computed[at(value)]; });
    }
    if (int8[i] && !splits[i]) computed[at(op.output)] = there[at(op.output)] = true;
  }
}

void Placement::withdraw(const Graph& graph) {
  for (std::size_t i = graph.ops.size(); i-- > 0;) {
    const Op& op = graph.ops[i];
    if (!int8[i]) continue;
    if (!needs_u8[at(op.output)]) {
      const bool product = op.kind == OpKind::product;
      splits[i] = product && op.inputs.size() > 1;
      int8[i] = product || op.kind == OpKind::max_pool || op.kind == OpKind::avg_pool ||
                op.kind == OpKind::multiply;
      if (!int8[i]) continue;
    }
    for (std::size_t j = 0; j < op.inputs.size(); ++j) {
      if (j == 0 || !splits[i]) needs_u8[at(op.inputs[j])] = true;
    }
  }
}

/// Values that share a quantizer, as an op moves them unchanged.
class Sharing {
 public:
  Sharing(const Graph& graph, const Placement& placement) : first_(graph.values.size()) {
    std::iota(first_.begin(), first_.end(), 0);
    for (std::size_t i = 0; i < graph.ops.size(); ++i) {
      const Op& op = graph.ops[i];
      if (!placement.int8[i] || (op.kind != OpKind::view && op.kind != OpKind::max_pool)) continue;
      for (const int input : op.inputs) join(input, op.output);
    }
  }
  int first_of(int value) const {
    while (first_[at(value)] != value) value = first_[at(value)];
    return value;
  }

 private:
  void join(int a, int b) {
    const int first = first_of(a), second = first_of(b);
    if (first < second) first_[at(second)] = first;
    if (second < first) first_[at(first)] = second;
  }

  std::vector<int> first_;
};

/// Writes the graph with both kinds of values.
class Writer {
 public:
  Writer(const Graph& from, const Placement& placement)
      : from_(from),
        placement_(placement),
        sharing_(from, placement),
        u8_(from.values.size(), -1),
        f32_(from.values.size(), -1),
        quantizers_(from.values.size(), -1) {}

  Graph write() {
    f32_[at(from_.input)] = to_.input = new_value(from_.input, DType::f32);
    for (std::size_t i = 0; i < from_.ops.size(); ++i) add(from_.ops[i], i);
    to_.output = as_f32(from_.output);
    return std::move(to_);
  }

 private:
  int new_value(int value, DType dtype);
  int quantizer_of(int value);
  int as_u8(int value);
  int as_f32(int value);
  void add(const Op& op, std::size_t i);
  void add_product(const Op& op, std::size_t i);
  void add_to_f32(const Op& product, int sum);

  const Graph& from_;
  const Placement& placement_;
  const Sharing sharing_;
  Graph to_;
  std::vector<int> u8_, f32_;    // places in to_.values; -1: not there yet
  std::vector<int> quantizers_;  // places in to_.quantizers, by the first value that has it
};

int Writer::new_value(int value, DType dtype) {
  Value copy = from_.values[at(value)];
  if (dtype == DType::u8) {
    copy.dtype = dtype;
    copy.quantizer = quantizer_of(value);
  }
  to_.values.push_back(std::move(copy));
  return static_cast<int>(to_.values.size()) - 1;
}

int Writer::quantizer_of(int value) {
  const int first = sharing_.first_of(value);
  int& place = quantizers_[at(first)];
  if (place < 0) {
    place = static_cast<int>(to_.quantizers.size());
    to_.quantizers.push_back(
        {from_.values[at(first)].name, Tensor::zeros({}), Tensor::zeros({}, {DType::u8})});
  }
  return place;
}

int Writer::as_u8(int value) {
  int& place = u8_[at(value)];
  if (place >= 0) return place;
  place = new_value(value, DType::u8);
  to_.ops.push_back({.kind = OpKind::quantize,
                     .name = from_.values[at(value)].name + ".quantize",
                     .inputs = {f32_[at(value)]},
                     .output = place});
  return place;
}

int Writer::as_f32(int value) {
  int& place = f32_[at(value)];
  if (place >= 0) return place;
  place = new_value(value, DType::f32);
  to_.ops.push_back({.kind = OpKind::dequantize,
                     .name = from_.values[at(value)].name + ".dequantize",
                     .inputs = {u8_[at(value)]},
                     .output = place});
  return place;
}

void Writer::add(const Op& op, std::size_t i) {
  if (op.kind == OpKind::product && placement_.int8[i]) return add_product(op, i);
  Op copy = op;
  for (int& input : copy.inputs) input = placement_.int8[i] ? as_u8(input) : as_f32(input);
  if (placement_.int8[i]) {
    copy.output = u8_[at(op.output)] = new_value(op.output, DType::u8);
    if (op.kind == OpKind::table) copy.table = Tensor::zeros({256}, {DType::u8});
  } else {
    copy.output = f32_[at(op.output)] = new_value(op.output, DType::f32);
  }
  to_.ops.push_back(std::move(copy));
}

void Writer::add_product(const Op& op, std::size_t i) {
  Op product = op;
  product.weight = Tensor::zeros(op.weight.shape(), {DType::i8});
  product.weight_scale = Tensor::zeros(op.bias.shape());
  product.bias = Tensor::zeros(op.bias.shape());
  product.inputs = {as_u8(op.inputs[0])};
  const bool residual = op.inputs.size() > 1, bounds = op.low || op.high;
  const bool writes_u8 = !placement_.splits[i] && placement_.needs_u8[at(op.output)];
  if (writes_u8) {
    if (residual) product.inputs.push_back(as_u8(op.inputs[1]));
    product.output = u8_[at(op.output)] = new_value(op.output, DType::u8);
    to_.ops.push_back(std::move(product));
    return;
  }
  product.low = product.high = std::nullopt;
  product.output = new_value(op.output, DType::f32);
  if (!residual && !bounds) {
    f32_[at(op.output)] = product.output;
    to_.ops.push_back(std::move(product));
    return;
  }
  to_.values[at(product.output)].name += ".product";
  const int sum = product.output;
  to_.ops.push_back(std::move(product));
  add_to_f32(op, sum);
}

/// What a product in 8-bit integers with a result in f32 leaves to do: its residual and bounds.
void Writer::add_to_f32(const Op& product, int sum) {
  const BatchShape& shape = from_.values[at(product.output)].shape;
  Op rest{.kind = OpKind::real, .name = product.name + ".add", .inputs = {sum}};
  rest.low = product.low;
  rest.high = product.high;
  if (product.inputs.size() > 1) {
    rest.kind = OpKind::add;
    rest.inputs.push_back(as_f32(product.inputs[1]));
    rest.calls.push_back(
        {"add", {}, {{Operand::From::input, 0}, {Operand::From::input, 1}}, shape, DType::f32});
  } else {
    rest.name = product.name + ".clamp";
    rest.calls.push_back({"clone", {}, {{Operand::From::input, 0}}, shape, DType::f32});
  }
  rest.output = f32_[at(product.output)] = new_value(product.output, DType::f32);
  to_.ops.push_back(std::move(rest));
}

}  // namespace

Graph int8_graph(const Graph& graph, const std::function<bool(const Op& product)>& in_f32) {
  return Writer(graph, Placement(graph, in_f32)).write();
}

}  // namespace athanor::nn::quantized
