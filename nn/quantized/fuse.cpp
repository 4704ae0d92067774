#include <algorithm>
#include <cmath>

#include "nn/quantized/detail/build.h"
#include "nn/quantized/detail/replay.h"

namespace athanor::nn::quantized {
namespace {

/// A convolution that has one weight per channel and no more: a batch norm.
bool is_norm(const Op& op) {
  if (op.kind != OpKind::product) return false;
  const Shape& w = op.weight.shape();
  const Conv2dParams& conv = op.conv;
  return w[0] == conv.groups && w[1] * w[2] * w[3] == 1 && conv.stride[0] == 1 && conv.stride[1] == 1 &&
         conv.padding[0] == 0 && conv.padding[1] == 0;
}

bool has_bounds(const Op& op) {
  return op.low || op.high;
}

bool can_have_bounds(const Op& op) {
  return op.kind == OpKind::product || op.kind == OpKind::add || op.kind == OpKind::multiply ||
         op.kind == OpKind::avg_pool;
}

void set_bounds(Op& op, const Bounds& bounds) {
  op.low = bounds.low;
  op.high = bounds.high;
}

/// [K] f64
std::vector<double> numbers(const Tensor& x) {
  return x.to_vector();
}

Tensor as_f32(const std::vector<double>& numbers, const Shape& shape) {
  return Tensor::from(std::vector<float>(numbers.begin(), numbers.end()), shape);
}

/// Appends the calls of `from` to those of `to`, whose inputs they have; returns the place of the last.
int append_calls(const Op& from, Op& to) {
  const int calls = static_cast<int>(to.calls.size()), constants = static_cast<int>(to.constants.size());
  for (Call call : from.calls) {
    for (Operand& operand : call.operands) {
      if (operand.from == Operand::From::call) operand.index += calls;
      if (operand.from == Operand::From::constant) operand.index += constants;
    }
    to.calls.push_back(std::move(call));
  }
  to.constants.insert(to.constants.end(), from.constants.begin(), from.constants.end());
  return static_cast<int>(to.calls.size()) - 1;
}

class Fusion {
 public:
  explicit Fusion(Graph& graph) : graph_(graph), dead_(graph.ops.size()) {}

  void run() {
    for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
      Op& op = graph_.ops[i];
      if (is_dead(op)) continue;
      if (folds_norm(op) || merges_table(op) || adds_residual(op)) continue;
      (void)(limits_producer(op) || limits_before_pool(op));
    }
    remove_unread();
    compact();
  }

 private:
  /// The op that computes a value, if nothing but `readers` reads it; null if there is none.
  Op* producer(int value, int readers = 1);
  int readers_of(int value) const;
  const Op* any_producer(int value) const;
  void kill(const Op& op) { dead_[static_cast<std::size_t>(&op - graph_.ops.data())] = true; }
  bool is_dead(const Op& op) const { return dead_[static_cast<std::size_t>(&op - graph_.ops.data())]; }

  bool folds_norm(Op& norm);
  bool merges_table(Op& op);
  bool adds_residual(Op& sum);
  bool limits_producer(Op& table);
  bool limits_before_pool(Op& table);
  void remove_unread();
  void compact();

  Graph& graph_;
  std::vector<bool> dead_;
};

const Op* Fusion::any_producer(int value) const {
  for (const Op& op : graph_.ops) {
    if (op.output == value && !is_dead(op)) return &op;
  }
  return nullptr;
}

int Fusion::readers_of(int value) const {
  std::ptrdiff_t readers = value == graph_.output;
  for (const Op& op : graph_.ops) {
    if (!is_dead(op)) readers += std::count(op.inputs.begin(), op.inputs.end(), value);
  }
  return static_cast<int>(readers);
}

Op* Fusion::producer(int value, int readers) {
  const Op* const op = any_producer(value);
  return op && readers_of(value) == readers ? const_cast<Op*>(op) : nullptr;
}

/// norm(product(x)) becomes a product. The op takes the norm's place, where all that it reads exists.
bool Fusion::folds_norm(Op& norm) {
  if (!is_norm(norm)) return false;
  Op* const product = producer(norm.inputs[0]);
  if (!product || product->kind != OpKind::product || has_bounds(*product) || product->inputs.size() > 1 ||
      product->weight.dim(0) != norm.weight.dim(0))
    return false;
  const std::vector<double> scale = numbers(norm.weight), shift = numbers(norm.bias);
  std::vector<double> weight = numbers(product->weight), bias = numbers(product->bias);
  const std::size_t each = weight.size() / scale.size();
  for (std::size_t i = 0; i < weight.size(); ++i) weight[i] *= scale[i / each];
  for (std::size_t k = 0; k < bias.size(); ++k) bias[k] = bias[k] * scale[k] + shift[k];
  Op folded = *product;
  folded.weight = as_f32(weight, product->weight.shape());
  folded.bias = as_f32(bias, product->bias.shape());
  folded.inputs.insert(folded.inputs.end(), norm.inputs.begin() + 1, norm.inputs.end());
  folded.low = norm.low;
  folded.high = norm.high;
  folded.output = norm.output;
  kill(*product);
  norm = std::move(folded);
  return true;
}

/// An elementwise op of tables of one x, and perhaps of x, becomes a table of x.
bool Fusion::merges_table(Op& op) {
  const bool elementwise = op.kind == OpKind::table || op.kind == OpKind::add || op.kind == OpKind::real;
  if (!elementwise || op.calls.size() != 1 || !is_elementwise(op.calls[0].op)) return false;
  for (const Constant& constant : op.constants)
    if (constant.shape.grows != 0 || constant.value.numel() != 1) return false;
  int root = -1;
  bool has_table = false;
  for (const int input : op.inputs) {
    const Op* const table = any_producer(input);
    const bool is_table = table && table->kind == OpKind::table;
    const int from = is_table ? table->inputs[0] : input;
    if (root >= 0 && from != root) return false;
    root = from;
    has_table = has_table || is_table;
  }
  const auto shape = [this](int value) -> const BatchShape& {
    return graph_.values[static_cast<std::size_t>(value)].shape;
  };
  if (!has_table || shape(root) != shape(op.output)) return false;
  Op merged{.kind = OpKind::table, .name = op.name, .inputs = {root}, .output = op.output};
  std::vector<Operand> operands;
  for (const int input : op.inputs) {
    const Op* const table = any_producer(input);
    operands.push_back(table && table->kind == OpKind::table
                           ? Operand{Operand::From::call, append_calls(*table, merged)}
                           : Operand{Operand::From::input, 0});
  }
  Call last = op.calls[0];
  for (Operand& operand : last.operands) {
    if (operand.from == Operand::From::input) {
      operand = operands[static_cast<std::size_t>(operand.index)];
    } else if (operand.from == Operand::From::constant) {
      operand.index += static_cast<int>(merged.constants.size());
    }
  }
  merged.constants.insert(merged.constants.end(), op.constants.begin(), op.constants.end());
  merged.calls.push_back(std::move(last));
  op = std::move(merged);
  remove_unread();
  return true;
}

/// product(x) + residual becomes one op, of the product that is computed last.
bool Fusion::adds_residual(Op& sum) {
  if (sum.kind != OpKind::add) return false;
  Op* last = nullptr;
  for (const int input : sum.inputs) {
    Op* const product = producer(input);
    if (product && product->kind == OpKind::product && !has_bounds(*product) && product->inputs.size() == 1 &&
        product > last)
      last = product;
  }
  if (!last) return false;
  Op fused = *last;
  fused.inputs.push_back(sum.inputs[sum.inputs[0] == last->output]);
  fused.output = sum.output;
  kill(*last);
  sum = std::move(fused);
  return true;
}

/// A ReLU or clamp becomes bounds of the op before it.
bool Fusion::limits_producer(Op& table) {
  const std::optional<Bounds> bounds = bounds_of(table);
  if (!bounds) return false;
  Op* const before = producer(table.inputs[0]);
  if (!before || !can_have_bounds(*before) || has_bounds(*before)) return false;
  set_bounds(*before, *bounds);
  before->output = table.output;
  kill(table);
  return true;
}

/// The same where a max pool is between them: the maximum of limited values is the limited maximum.
bool Fusion::limits_before_pool(Op& table) {
  const std::optional<Bounds> bounds = bounds_of(table);
  if (!bounds) return false;
  Op* const pool = producer(table.inputs[0]);
  if (!pool || pool->kind != OpKind::max_pool) return false;
  Op* const before = producer(pool->inputs[0]);
  if (!before || !can_have_bounds(*before) || has_bounds(*before)) return false;
  set_bounds(*before, *bounds);
  pool->output = table.output;
  kill(table);
  return true;
}

void Fusion::remove_unread() {
  for (auto op = graph_.ops.rbegin(); op != graph_.ops.rend(); ++op) {
    if (!is_dead(*op) && readers_of(op->output) == 0) kill(*op);
  }
}

/// Leaves out ops that are dead and values that nothing has.
void Fusion::compact() {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < graph_.ops.size(); ++i) {
    if (!dead_[i]) ops.push_back(std::move(graph_.ops[i]));
  }
  std::vector<Value> values;
  std::vector<int> places(graph_.values.size(), -1);
  const auto keep = [&](int value, const std::string& name) {
    places[static_cast<std::size_t>(value)] = static_cast<int>(values.size());
    values.push_back(graph_.values[static_cast<std::size_t>(value)]);
    values.back().name = name;
  };
  keep(graph_.input, kInput);
  for (const Op& op : ops) keep(op.output, op.name);
  const auto move = [&](int& value) { value = places[static_cast<std::size_t>(value)]; };
  for (Op& op : ops) {
    for (int& input : op.inputs) move(input);
    move(op.output);
  }
  move(graph_.input);
  move(graph_.output);
  graph_.values = std::move(values);
  graph_.ops = std::move(ops);
}

}  // namespace

std::optional<Bounds> bounds_of(const Op& op) {
  if (op.kind != OpKind::table || op.calls.size() != 1) return std::nullopt;
  const Call& call = op.calls[0];
  if (call.op == "relu") return Bounds{0, std::nullopt};
  if (call.op == "relu6") return Bounds{0, 6};
  if (call.op != "clamp") return std::nullopt;
  const std::span<const double> given = numbers_of(call, "numbers");
  Bounds bounds;
  if (!std::isnan(given[0])) bounds.low = given[0];
  if (!std::isnan(given[1])) bounds.high = given[1];
  const bool ordered = !bounds.low || !bounds.high || *bounds.low <= *bounds.high;
  return ordered ? std::optional(bounds) : std::nullopt;
}

void fuse(Graph& graph) {
  Fusion(graph).run();
}

}  // namespace athanor::nn::quantized
