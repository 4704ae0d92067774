#include "nn/quantized/detail/build.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "autograd/grad_mode.h"
#include "autograd/op_trace.h"
#include "autograd/shape.h"
#include "kernels/elementwise_ops.h"
#include "nn/detail/evaluation.h"
#include "nn/detail/program.h"
#include "nn/quantized/detail/replay.h"

namespace athanor::nn::quantized {
namespace {

bool is_view(std::string_view op) {
  static const std::set<std::string_view> kOps{"reshape",   "permute", "narrow", "select", "squeeze",
                                               "unsqueeze", "clone",   "cat",    "stack"};
  return kOps.contains(op);
}

std::string_view name_of(Activation activation) {
  switch (activation) {
    case Activation::none: break;
#define ATH_CASE(Op, name) \
  case Activation::name: return #name;
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  return "";
}

BatchShape shape_of(const traced::Value& value) {
  BatchShape shape;
  for (int axis = 0; axis < value.rank(); ++axis) {
    const std::int64_t batches = value.batches_in(axis);
    shape.one.push_back(batches > 0 ? batches : value.two.dim(axis));
    if (batches > 0) shape.grows |= 1u << axis;
  }
  return shape;
}

/// A dense copy on the CPU.
Tensor own(const Tensor& x) {
  return clone(x.detach().to(kCpu));
}

bool same_bytes(const Tensor& a, const Tensor& b) {
  if (TensorPlace(a) == TensorPlace(b)) return true;
  const Tensor left = own(a), right = own(b);
  return left.shape() == right.shape() && std::memcmp(left.raw_data(), right.raw_data(), left.bytes()) == 0;
}

bool is_constant(const traced::Value* value) {
  return !value || value->is_fixed();
}

/// [C] f64 each: y = x scale + shift.
struct ScaleAndShift {
  std::vector<double> scale, shift;

  /// Of a batch norm in evaluation.
  explicit ScaleAndShift(const traced::Op& norm) {
    const auto values_of = [&](int i, double fill) {
      const traced::Value* const value = norm.optional(i);
      return value ? value->two.detach().to_vector()
                   : std::vector<double>(static_cast<std::size_t>(norm.x().two.dim(-1)), fill);
    };
    const std::vector<double> gamma = values_of(1, 1), beta = values_of(2, 0), mean = values_of(3, 0),
                              variance = values_of(4, 1);
    const double eps = static_cast<float>(norm.number("eps"));
    for (std::size_t c = 0; c < mean.size(); ++c) {
      scale.push_back(gamma[c] / std::sqrt(variance[c] + eps));
      shift.push_back(beta[c] - mean[c] * scale[c]);
    }
  }
};

/// Builds the graph, op by op, before any fusion.
class Builder {
 public:
  explicit Builder(const traced::Program& program) {
    names_[kInput] = 1;
    graph_.input = place_of(program.input(), kInput);
    for (const traced::Op* const op : program.ops()) add(*op);
    graph_.output = input_of(program.output());
    rename_taken();
  }
  Graph result() { return std::move(graph_); }

 private:
  void add(const traced::Op& op);
  void add_product(const traced::Op& op);
  void add_norm(const traced::Op& op);
  void add_call(const traced::Op& op);
  void add_activation(const traced::Op& op, Op& last);

  int place_of(const traced::Value& value, const std::string& name);
  int input_of(const traced::Value& value) const;
  std::string fresh(const std::string& name);
  std::string name_of_layer(const traced::Op& op);
  void finish(const traced::Op& from, Op op);
  int constant_of(const traced::Op& op, const traced::Value& value, std::size_t operand, Op& to);
  void rename_taken();
  bool is_pool(const traced::Op& op, Op& to) const;
  OpKind kind_of(const traced::Op& op, Op& to) const;

  Graph graph_;
  std::map<const traced::Value*, int> places_;
  std::map<std::string, int> names_;          // number of requests per name
  std::map<std::string, Tensor> parameters_;  // that calls read, by name
};

int Builder::place_of(const traced::Value& value, const std::string& name) {
  graph_.values.push_back({name, shape_of(value), value.two.dtype(), -1});
  return places_[&value] = static_cast<int>(graph_.values.size()) - 1;
}

int Builder::input_of(const traced::Value& value) const {
  const auto found = places_.find(&value);
  ATH_CHECK(found != places_.end(), "{}: every value must have been computed before it is read", kCaller);
  return found->second;
}

std::string Builder::fresh(const std::string& base) {
  std::string name = base;
  for (int& count = names_[base]; names_[name] > 0; name = fmt::format("{}_{}", base, count)) ++count;
  names_[name] = std::max(names_[name], 1);
  return name;
}

/// Of the module whose weights a product reads.
std::string Builder::name_of_layer(const traced::Op& op) {
  return fresh(op.layer.empty() ? op.name : op.layer);
}

void Builder::finish(const traced::Op& from, Op op) {
  op.output = place_of(from.y(), op.name);
  graph_.ops.push_back(std::move(op));
}

void Builder::add(const traced::Op& op) {
  ATH_CHECK(!op.inputs.empty() && op.outputs.size() == 1 && replay_of(op.name),
            "{}: every op must be one that can be repeated, but {} is not; build the network from ops of "
            "autograd/ that are (docs/reference/quantization.md)",
            kCaller, op.described());
  ATH_CHECK(op.name != "batch_norm" || op.integer("training") == 0,
            "{}: batch norms must be in evaluation mode, but {} is in training mode", kCaller,
            op.described());
  const bool constant_weights =
      op.inputs.size() >= 3 && is_constant(op.inputs[1]) && is_constant(op.inputs[2]);
  if ((op.name == "conv2d" || op.name == "linear") && op.x().varies && constant_weights)
    return add_product(op);
  if (op.name == "batch_norm" && op.x().varies && constant_weights && op.optional(3) && op.optional(4) &&
      is_constant(op.optional(3)) && is_constant(op.optional(4)) && (!op.optional(5) || op.x(5).varies))
    return add_norm(op);
  add_call(op);
}

void Builder::add_product(const traced::Op& op) {
  Op product{.kind = OpKind::product, .name = name_of_layer(op), .inputs = {input_of(op.x())}};
  product.linear = op.name == "linear";
  const Tensor w = own(op.x(1).two);
  product.weight = product.linear ? reshape(w, {w.dim(0), 1, 1, w.dim(1)}) : w;
  product.bias = op.optional(2) ? own(op.x(2).two) : Tensor::zeros({w.dim(0)});
  if (!product.linear) {
    product.conv.groups = op.integer("groups");
    const std::pair<const char*, std::int64_t(*)[2]> pairs[]{{"stride", &product.conv.stride},
                                                             {"padding", &product.conv.padding},
                                                             {"dilation", &product.conv.dilation}};
    for (const auto& [name, to] : pairs) {
      const std::vector<std::int64_t> sizes = op.integers(name);
      (*to)[0] = sizes.at(0), (*to)[1] = sizes.at(1);
    }
  }
  add_activation(op, product);
}

/// As a convolution with one weight per channel.
void Builder::add_norm(const traced::Op& op) {
  Op product{.kind = OpKind::product, .name = name_of_layer(op), .inputs = {input_of(op.x())}};
  if (op.optional(5)) product.inputs.push_back(input_of(op.x(5)));
  const ScaleAndShift norm(op);
  const auto channels = static_cast<std::int64_t>(norm.scale.size());
  product.linear = op.x().rank() != 4;
  product.conv.groups = channels;
  product.weight =
      Tensor::from(std::vector<float>(norm.scale.begin(), norm.scale.end()), {channels, 1, 1, 1});
  product.bias = Tensor::from(std::vector<float>(norm.shift.begin(), norm.shift.end()), {channels});
  add_activation(op, product);
}

/// Adds an op with what the traced one applies to its result.
void Builder::add_activation(const traced::Op& op, Op& last) {
  const auto activation = static_cast<Activation>(op.integer("activation"));
  if (activation == Activation::none) return finish(op, std::move(last));
  const BatchShape shape = shape_of(op.y());
  graph_.values.push_back({last.name, shape, DType::f32, -1});
  last.output = static_cast<int>(graph_.values.size()) - 1;
  const std::string name(name_of(activation));
  Op table{.kind = OpKind::table, .name = fresh(last.name + "." + name), .inputs = {last.output}};
  table.calls.push_back({name, {}, {{Operand::From::input, 0}}, shape, DType::f32});
  graph_.ops.push_back(std::move(last));
  finish(op, std::move(table));
}

/// A value that does not depend on the images, as a constant of `to`.
int Builder::constant_of(const traced::Op& op, const traced::Value& value, std::size_t operand, Op& to) {
  Constant constant{value.name, {}, shape_of(value)};
  Tensor one = value.two.detach();
  for (int axis = 0; axis < one.rank(); ++axis) {
    if (constant.shape.grows >> axis & 1) one = narrow(one, axis, 0, constant.shape.one[axis]);
  }
  const bool holds = constant.shape.grows == 0
                         ? same_bytes(value.two, value.three)
                         : same_bytes(expand(one, value.two.shape()), value.two.detach()) &&
                               same_bytes(expand(one, value.three.shape()), value.three.detach());
  ATH_CHECK(holds,
            "{}: whatever depends on the input must be computed with ops of autograd/, but a {} {} that '{}' "
            "reads differs between two inputs and was computed elsewhere",
            kCaller, value.two.dtype(), value.two.shape(), op.name);
  // Other ops may read the parameter, too.
  Tensor& parameter = parameters_[value.name];
  if (value.name.empty() || !parameter.defined()) parameter = own(one);
  constant.value = parameter;
  if (value.name.empty()) constant.name = fmt::format("{}.operand{}", to.name, operand);
  to.constants.push_back(std::move(constant));
  return static_cast<int>(to.constants.size()) - 1;
}

/// A product's own weights have the names of its layer's parameters, and every value's scale is named after
/// the op that computes it: parameters that calls read then get other names.
void Builder::rename_taken() {
  for (Op& op : graph_.ops) {
    for (std::size_t i = 0; i < op.constants.size(); ++i) {
      std::string& name = op.constants[i].name;
      const std::string layer = name.substr(0, name.rfind('.'));
      if (layer == kInput || graph_.op_named(layer)) name = fmt::format("{}.operand{}", op.name, i);
    }
  }
}

/// Whether a pool or mean is one of windows of one size that lie within x; then sets its parameters.
bool Builder::is_pool(const traced::Op& op, Op& to) const {
  const Shape& x = op.x().two.shape();
  if (op.name == "mean") {
    if (op.x().rank() != 4 || op.integer("axes") != 0b110 || op.x().batches_in(0) != 1) return false;
    to.pool = {.window = {x[1], x[2]}, .stride = {x[1], x[2]}};
    return true;
  }
  const Shape& y = op.y().two.shape();
  if (op.name == "adaptive_avg_pool2d") {
    for (int i = 0; i < 2; ++i) {
      if (x[1 + i] % y[1 + i] != 0) return false;
      to.pool.window[i] = to.pool.stride[i] = x[1 + i] / y[1 + i];
    }
    return true;
  }
  to.pool = pool_of(to.calls.back(), x, y);
  if (op.name == "max_pool2d") return true;
  for (int i = 0; i < 2; ++i) {
    if (to.pool.padding[i] != 0 || (y[1 + i] - 1) * to.pool.stride[i] + to.pool.window[i] > x[1 + i])
      return false;
  }
  return true;
}

OpKind Builder::kind_of(const traced::Op& op, Op& to) const {
  const Value& y = graph_.values.back();
  if (y.dtype != DType::f32 || to.inputs.empty()) return OpKind::real;
  if (op.name == "max_pool2d" && is_pool(op, to)) return OpKind::max_pool;
  if ((op.name == "avg_pool2d" || op.name == "adaptive_avg_pool2d" || op.name == "mean") && is_pool(op, to))
    return OpKind::avg_pool;
  const bool one = to.inputs.size() == op.inputs.size();  // no constants
  if (is_view(op.name) && one) return OpKind::view;
  const auto shape = [&](std::size_t i) -> const BatchShape& {
    return graph_.values[static_cast<std::size_t>(to.inputs[i])].shape;
  };
  if (is_elementwise(op.name)) {
    const bool scalars = std::all_of(to.constants.begin(), to.constants.end(), [](const Constant& constant) {
      return constant.shape.grows == 0 && constant.value.numel() == 1;
    });
    const bool single = std::all_of(to.inputs.begin(), to.inputs.end(),
                                    [&](int input) { return input == to.inputs.front(); });
    if (scalars && single && shape(0) == y.shape) {
      to.inputs.resize(1);
      for (Operand& operand : to.calls.front().operands) {
        if (operand.from == Operand::From::input) operand.index = 0;
      }
      return OpKind::table;
    }
  }
  if (!one || to.inputs.size() != 2) return OpKind::real;
  if (op.name == "add" && shape(0) == shape(1)) return OpKind::add;
  if (op.name != "mul") return OpKind::real;
  const auto gates = [&](std::size_t x, std::size_t s) {
    const BatchShape &all = shape(x), &gate = shape(s);
    return all.one.rank() == 4 && gate.one.rank() == 4 && all.grows == 1 && gate.grows == 1 &&
           all.one[0] == gate.one[0] && gate.one[1] * gate.one[2] == 1 && gate.one[3] == all.one[3] &&
           all == y.shape;
  };
  if (gates(0, 1)) return OpKind::multiply;
  if (!gates(1, 0)) return OpKind::real;
  std::swap(to.inputs[0], to.inputs[1]);
  for (Operand& operand : to.calls.front().operands) operand.index = 1 - operand.index;
  return OpKind::multiply;
}

void Builder::add_call(const traced::Op& op) {
  Op to{.kind = OpKind::real,
        .name = fresh(op.layer.empty() ? op.name : fmt::format("{}.{}", op.layer, op.name))};
  Call call{op.name, {}, {}, shape_of(op.y()), op.y().two.dtype()};
  for (const TracedAttribute& attribute : op.two->attributes)
    call.attributes.push_back({std::string(attribute.name), op.numbers(attribute.name)});
  for (std::size_t i = 0; i < op.inputs.size(); ++i) {
    const traced::Value* const value = op.inputs[i];
    Operand& operand = call.operands.emplace_back();
    if (!value) continue;
    if (value->varies) {
      operand = {Operand::From::input, static_cast<int>(to.inputs.size())};
      to.inputs.push_back(input_of(*value));
    } else {
      operand = {Operand::From::constant, constant_of(op, *value, i, to)};
    }
  }
  to.calls.push_back(std::move(call));
  to.output = place_of(op.y(), to.name);
  to.kind = kind_of(op, to);
  graph_.ops.push_back(std::move(to));
}

void check(const Module& network, const Shape& sample) {
  for (const std::int64_t size : sample)
    ATH_CHECK(size > 0, "{}: a sample must have elements, but is {}", kCaller, sample);
  for (const Parameter& parameter : network.parameters())
    ATH_CHECK(parameter.tensor.dtype() == DType::f32,
              "{}: weights must be f32, but '{}' is {}; write network.to(DType::f32)", kCaller,
              parameter.name, parameter.tensor.dtype());
}

}  // namespace

bool is_elementwise(std::string_view op) {
  static const std::set<std::string_view> kOps = [] {
    std::set<std::string_view> ops{"affine", "leaky_relu", "elu", "softplus", "clamp"};
#define ATH_ADD(Op, name) ops.insert(#name);
    ATH_UNARY_OPS(ATH_ADD)
    ATH_BINARY_OPS(ATH_ADD)
#undef ATH_ADD
    return ops;
  }();
  return kOps.contains(op);
}

Graph float_graph(Module& network, const Shape& sample) {
  check(network, sample);
  const NoGrad no_grad;
  const Evaluation evaluation(network);
  const std::vector<Parameter> parameters = network.parameters();
  const traced::Program program(kCaller, network, sample,
                                parameters.empty() ? kCpu : parameters[0].tensor.device());
  Graph graph = Builder(program).result();
  fuse(graph);
  return graph;
}

}  // namespace athanor::nn::quantized
