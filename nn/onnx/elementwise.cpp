#include <cmath>
#include <numbers>

#include "kernels/compare.h"
#include "nn/onnx/detail/ops.h"

namespace athanor::nn::onnx {
namespace {

// One node, or a known formula, of one value in the layout it has.
void lower_unary(Graph& graph, const Op& op) {
  const Layout layout = graph.layout_of(op.x());
  graph.define(op.y(), unary(graph, op.name, graph.tensor(op.x(), layout)), layout);
}

void lower_affine(Graph& graph, const Op& op) {
  const Layout layout = graph.layout_of(op.x());
  const std::string x = graph.tensor(op.x(), layout);
  graph.define(op.y(), scaled(graph, x, op.number("scale"), op.number("shift")), layout);
}

/// The node that a functor says computes it, or null.
template <class Op> constexpr const char* node_of() {
  if constexpr (requires { Op::kOnnxNode; }) return Op::kOnnxNode;
  return nullptr;
}

/// The node of an op that is one, or null.
constexpr const char* node_of(std::string_view op) {
  if (op == "neg") return "Sub";  // of integers: zero less x
  if (op == "where") return "Where";
#define ATH_NODE(Op, name) \
  if (op == #name) return node_of<kernels::Op>();
  ATH_UNARY_OPS(ATH_NODE)
  ATH_BINARY_OPS(ATH_NODE)
#undef ATH_NODE
  return nullptr;
}

void lower_aligned(Graph& graph, const Op& op) {
  const Operands operands = aligned(graph, op.inputs);
  graph.define(op.y(), graph.node(node_of(op.name), operands.names), operands.layout);
}

// floor_divide or remainder
void lower_quotient(Graph& graph, const Op& op) {
  if (!is_floating(op.y().two.dtype())) refuse(op, "its operands are integers");
  const Operands operands = aligned(graph, op.inputs);
  std::string y = graph.node("Floor", {graph.node("Div", operands.names)});
  if (op.name == "remainder")
    y = graph.node("Sub", {operands.names[0], graph.node("Mul", {y, operands.names[1]})});
  graph.define(op.y(), y, operands.layout);
}

void lower_compare(Graph& graph, const Op& op) {
  Operands operands = aligned(graph, op.inputs);
  const auto predicate = static_cast<kernels::Predicate>(op.integer("predicate"));
  const auto as_bool = [&] {
    for (std::string& name : operands.names)
      name = graph.node("Cast", {name}, {{"to", data_type(DType::boolean)}});
  };
  const auto of = [&](const char* node) { return graph.node(node, operands.names); };
  const auto result = [&] {
    switch (predicate) {
      case kernels::Predicate::equal: return of("Equal");
      case kernels::Predicate::not_equal: return graph.node("Not", {of("Equal")});
      case kernels::Predicate::less: return of("Less");
      case kernels::Predicate::less_equal: return of("LessOrEqual");
      case kernels::Predicate::logical_and: as_bool(); return of("And");
      case kernels::Predicate::logical_or: as_bool(); return of("Or");
      case kernels::Predicate::logical_xor: as_bool(); return of("Xor");
    }
    refuse(op, "this comparison is not supported");
  }();
  graph.define(op.y(), result, operands.layout);
}

// Ops of one tensor and numbers ----------------------------------------------------------------------------

template <class Make> void lower_numbers(Graph& graph, const Op& op, const Make& make) {
  const Layout layout = graph.layout_of(op.x());
  graph.define(op.y(), make(graph.tensor(op.x(), layout), op.numbers("numbers")), layout);
}

// leaky_relu or elu
void lower_slope(Graph& graph, const Op& op) {
  const char* const node = op.name == "elu" ? "Elu" : "LeakyRelu";
  lower_numbers(graph, op, [&](const std::string& x, const std::vector<double>& given) {
    return graph.node(node, {x}, {{"alpha", static_cast<float>(given[0])}});
  });
}

// The threshold only saves work: beyond it the formula gives x to the last bit but one.
void lower_softplus(Graph& graph, const Op& op) {
  lower_numbers(graph, op, [&](const std::string& x, const std::vector<double>& given) {
    if (given[1] < 10) refuse(op, fmt::format("its threshold {} is below 10", given[1]));
    return scaled(graph, graph.node("Softplus", {scaled(graph, x, given[0])}), 1 / given[0]);
  });
}

void lower_clamp(Graph& graph, const Op& op) {
  lower_numbers(graph, op, [&](const std::string& x, const std::vector<double>& given) {
    const auto bound = [&](double value) {
      return std::isnan(value) ? "" : graph.numbers({static_cast<float>(value)});
    };
    return graph.node("Clip", {x, bound(given[0]), bound(given[1])});
  });
}

void lower_power(Graph& graph, const Op& op) {
  if (op.inputs.size() == 2) return lower_aligned(graph, op);
  lower_numbers(graph, op, [&](const std::string& x, const std::vector<double>& given) {
    return graph.node("Pow", {x, graph.numbers({static_cast<float>(given[0])})});
  });
}

std::string gelu(Graph& graph, const std::string& x) {
  const std::string erf = graph.node("Erf", {scaled(graph, x, std::numbers::sqrt2 / 2)});
  return scaled(graph, graph.node("Mul", {x, scaled(graph, erf, 1, 1)}), 0.5);
}

// x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
std::string gelu_tanh(Graph& graph, const std::string& x) {
  const std::string square = graph.node("Mul", {x, x});
  const std::string inner = graph.node("Mul", {x, scaled(graph, square, 0.044715, 1)});
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  const std::string tanh = graph.node("Tanh", {scaled(graph, inner, scale)});
  return scaled(graph, graph.node("Mul", {x, scaled(graph, tanh, 1, 1)}), 0.5);
}

using Formula = std::string (*)(Graph& graph, const std::string& x);

/// Unary ops that are no single node of ONNX.
constexpr std::pair<std::string_view, Formula> kFormulas[] = {
    {"relu6",
     [](Graph& graph, const std::string& x) {
       return graph.node("Clip", {x, graph.numbers({0}), graph.numbers({6})});
     }},
    {"gelu", gelu},
    {"gelu_tanh", gelu_tanh},
    {"silu",
     [](Graph& graph, const std::string& x) {
       return graph.node("Mul", {x, graph.node("Sigmoid", {x})});
     }},
    {"hardsigmoid",
     [](Graph& graph, const std::string& x) {
       return graph.node("HardSigmoid", {x}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}});
     }},
    {"mish",
     [](Graph& graph, const std::string& x) {
       return graph.node("Mul", {x, graph.node("Tanh", {graph.node("Softplus", {x})})});
     }},
    {"rsqrt",
     [](Graph& graph, const std::string& x) { return graph.node("Reciprocal", {graph.node("Sqrt", {x})}); }},
    {"square",
     [](Graph& graph, const std::string& x) {
       return graph.node("Mul", {x, x});
     }},
};

constexpr Formula formula_of(std::string_view op) {
  for (const auto& [name, formula] : kFormulas) {
    if (name == op) return formula;
  }
  return nullptr;
}

#define ATH_CHECK_OP(Op, name) \
  static_assert(node_of(#name) || formula_of(#name), #name " must have a kOnnxNode or a formula here");
ATH_UNARY_OPS(ATH_CHECK_OP)
#undef ATH_CHECK_OP

}  // namespace

std::string scaled(Graph& graph, const std::string& x, double scale, double shift) {
  std::string y = x;
  if (scale != 1) y = graph.node("Mul", {y, graph.numbers({static_cast<float>(scale)})});
  if (shift != 0) y = graph.node("Add", {y, graph.numbers({static_cast<float>(shift)})});
  return y;
}

std::string unary(Graph& graph, std::string_view op, const std::string& x) {
  if (const Formula formula = formula_of(op)) return formula(graph, x);
  return graph.node(node_of(op), {x});
}

std::string activated(Graph& graph, std::int64_t activation, const std::string& x) {
  switch (static_cast<Activation>(activation)) {
    case Activation::none: return x;
#define ATH_CASE(Op, name) \
  case Activation::name: return unary(graph, #name, x);
      ATH_ACTIVATIONS(ATH_CASE)
#undef ATH_CASE
  }
  return x;
}

Operands aligned(Graph& graph, std::span<Value* const> values) {
  bool images = true, there = false;
  for (Value* value : values) {
    if (value->is_fixed()) {
      images = images && value->rank() <= 4;
      continue;
    }
    images = images && (value->rank() == 4 || value->rank() == 0);
    there = there || graph.layout_of(*value) == Layout::nchw;
  }
  const Layout layout = images && there ? Layout::nchw : Layout::ours;
  Operands operands{layout, {}};
  for (Value* value : values)
    operands.names.push_back(graph.tensor(*value, value->rank() == 0 ? Layout::ours : layout));
  return operands;
}

const LowerTable& elementwise_ops() {
  static const LowerTable kTable = [] {
    LowerTable table{
        {"affine", lower_affine},         {"neg", lower_aligned},        {"pow", lower_power},
        {"floor_divide", lower_quotient}, {"remainder", lower_quotient}, {"compare", lower_compare},
        {"where", lower_aligned},         {"leaky_relu", lower_slope},   {"elu", lower_slope},
        {"softplus", lower_softplus},     {"clamp", lower_clamp}};
#define ATH_ADD(Op, name) table[#name] = lower_unary;
    ATH_UNARY_OPS(ATH_ADD)
#undef ATH_ADD
#define ATH_ADD(Op, name) \
  if (node_of(#name)) table.emplace(#name, lower_aligned);
    ATH_BINARY_OPS(ATH_ADD)
#undef ATH_ADD
    return table;
  }();
  return kTable;
}

}  // namespace athanor::nn::onnx
