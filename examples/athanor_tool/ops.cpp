#include "examples/athanor_tool/ops.h"

#include "athanor.h"

namespace athanor::tool {
namespace {

Reduction reduction(Arguments& a) {
  return a.choice<Reduction>("reduction",
                             {{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}});
}

template <Tensor (*F)(const Tensor&)> Tensor unary(Arguments& a) {
  return F(a.in("x"));
}

template <Tensor (*F)(const Tensor&, const Tensor&)> Tensor binary(Arguments& a) {
  const Tensor left = a.in("a");
  return F(left, a.in("b"));
}

Tensor run_cross_entropy(Arguments& a) {
  const Tensor logits = a.in("logits");
  return cross_entropy(logits, a.in("target"), a.attribute("label_smoothing", 0.0f), reduction(a));
}

}  // namespace

const std::map<std::string, Op>& op_table() {
  static const std::map<std::string, Op> table = {
      {"add", binary<add>},
      {"cross_entropy", run_cross_entropy},
      {"mse_loss",
       [](Arguments& a) {
         const Tensor left = a.in("a");
         return mse_loss(left, a.in("b"), reduction(a));
       }},
      {"mul", binary<mul>},
      {"nll_loss",
       [](Arguments& a) {
         const Tensor log_probs = a.in("log_probs");
         return nll_loss(log_probs, a.in("target"), reduction(a));
       }},
      {"relu", unary<relu>},
  };
  return table;
}

}  // namespace athanor::tool
