#include "autograd.h"

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace engine {
namespace {

thread_local int recording_is_off = 0;

using Function1 = float (*)(float);
using Function2 = float (*)(float, float);

Tensor plus(const Tensor& a, const Tensor& b) {
  return zip(a, b, [](float x, float y) { return x + y; });
}
Tensor times(const Tensor& a, const Tensor& b) {
  return zip(a, b, [](float x, float y) { return x * y; });
}

/// Frees a node. Its inputs may be all that holds theirs, and so on: a node that dies meanwhile waits its
/// turn in a list, for calls nested as deep as the graph would exhaust the stack.
void bury(Node* node) {
  thread_local std::vector<Node*>* waiting = nullptr;
  if (waiting) return waiting->push_back(node);
  std::vector<Node*> dead{node};
  waiting = &dead;
  while (!dead.empty()) {
    Node* next = dead.back();
    dead.pop_back();
    delete next;
  }
  waiting = nullptr;
}

/// What backward() knows of a variable on the way: how many of the nodes that read it have not run, and the
/// sum of what came from others.
struct Pending {
  int readers = 0;
  std::optional<Tensor> dy;
};
using Flow =
    std::unordered_map<const Tensor*, Pending>;  // by the address of the value, one for each variable

Flow count_readers(const Variable& loss) {
  Flow flow;
  std::vector<Variable> unseen{loss};
  while (!unseen.empty()) {
    const std::shared_ptr<Node> node = unseen.back().node();
    if (unseen.back().released()) throw std::logic_error("backward: this part of the tape has been used");
    unseen.pop_back();
    if (!node) continue;
    for (const Variable& input : node->inputs)
      if (input.requires_grad() && flow[&input.value()].readers++ == 0) unseen.push_back(input);
  }
  return flow;
}

void receive(Pending& pending, const Tensor& gradient, const Variable& variable) {
  if (gradient.shape() != variable.shape())
    throw std::logic_error(
        "backward: an operation's gradient must have the shape of its input, but has another");
  pending.dy = pending.dy ? plus(*pending.dy, gradient) : gradient;
}

/// d f(a, b) from the slopes by a and by b, each a function of a and b.
Variable binary(const Variable& a, const Variable& b, Function2 f, Function2 by_a, Function2 by_b) {
  return record(zip(a.value(), b.value(), f), {a, b}, [=, a = a.value(), b = b.value()](const Tensor& dy) {
    return std::vector{sum_to(times(dy, zip(a, b, by_a)), a.shape()),
                       sum_to(times(dy, zip(a, b, by_b)), b.shape())};
  });
}

/// d f(x) from the slope, a function of x and f(x).
Variable unary(const Variable& x, Function1 f, Function2 slope) {
  const Tensor y = map(x.value(), f);
  return record(y, {x},
                [=, x = x.value()](const Tensor& dy) { return std::vector{times(dy, zip(x, y, slope))}; });
}

}  // namespace

Variable::Variable(Tensor value, bool requires_grad) : state_(std::make_shared<State>()) {
  state_->value = std::move(value);
  state_->requires_grad = requires_grad;
}

Variable record(Tensor value, std::vector<Variable> inputs, decltype(Node::backward) backward) {
  Variable result(std::move(value));
  bool needed = false;
  for (const Variable& input : inputs) needed |= input.requires_grad();
  if (!needed || !is_recording()) return result;
  result.state_->requires_grad = true;
  result.state_->node = std::shared_ptr<Node>(new Node{std::move(inputs), std::move(backward)}, bury);
  return result;
}

NoGrad::NoGrad() {
  ++recording_is_off;
}
NoGrad::~NoGrad() {
  --recording_is_off;
}
bool is_recording() {
  return recording_is_off == 0;
}

void backward(const Variable& loss, float seed) {
  backward(loss, seed, nullptr);
}

void backward(const Variable& loss, float seed, const GradHook& ready) {
  if (loss.value().numel() != 1 || !loss.requires_grad())
    throw std::invalid_argument(
        "backward: the loss must have one element, and be computed from a variable that requires a gradient");
  Flow flow = count_readers(loss);
  receive(flow[&loss.value()], Tensor(loss.shape(), {seed}), loss);
  std::vector<Variable> complete{loss};
  while (!complete.empty()) {
    const Variable variable = complete.back();
    complete.pop_back();
    const Tensor dy = *std::exchange(flow[&variable.value()].dy, std::nullopt);
    const std::shared_ptr<Node> node = variable.node();
    if (!node) {
      const bool first = variable.grad().numel() == 0;
      variable.grad() =
          first ? dy.clone() : plus(variable.grad(), dy);  // a clone, for dy may be another's memory
      if (ready) ready(variable);
      continue;
    }
    const std::vector<Tensor> gradients = node->backward(dy);
    variable.release();
    if (gradients.size() != node->inputs.size())
      throw std::logic_error("backward: an operation must return a gradient for each of its inputs");
    for (std::size_t i = 0; i < node->inputs.size(); ++i) {
      const Variable& input = node->inputs[i];
      if (!input.requires_grad()) continue;
      Pending& pending = flow[&input.value()];
      receive(pending, gradients[i], input);
      if (--pending.readers == 0) complete.push_back(input);
    }
  }
}

Variable add(const Variable& a, const Variable& b) {
  return binary(
      a, b, [](float x, float y) { return x + y; }, [](float, float) { return 1.0f; },
      [](float, float) { return 1.0f; });
}

Variable sub(const Variable& a, const Variable& b) {
  return binary(
      a, b, [](float x, float y) { return x - y; }, [](float, float) { return 1.0f; },
      [](float, float) { return -1.0f; });
}

Variable mul(const Variable& a, const Variable& b) {
  return binary(
      a, b, [](float x, float y) { return x * y; }, [](float, float y) { return y; },
      [](float x, float) { return x; });
}

Variable div(const Variable& a, const Variable& b) {
  return binary(
      a, b, [](float x, float y) { return x / y; }, [](float, float y) { return 1 / y; },
      [](float x, float y) { return -x / (y * y); });
}

Variable scale(const Variable& x, float factor) {
  const auto scaled = [factor](const Tensor& t) { return map(t, [factor](float v) { return factor * v; }); };
  return record(scaled(x.value()), {x}, [scaled](const Tensor& dy) { return std::vector{scaled(dy)}; });
}

Variable exp(const Variable& x) {
  return unary(
      x, [](float v) { return std::exp(v); }, [](float, float y) { return y; });
}

Variable log(const Variable& x) {
  return unary(
      x, [](float v) { return std::log(v); }, [](float v, float) { return 1 / v; });
}

Variable sqrt(const Variable& x) {
  return unary(
      x, [](float v) { return std::sqrt(v); }, [](float, float y) { return 0.5f / y; });
}

Variable relu(const Variable& x) {
  return unary(
      x, [](float v) { return v < 0 ? 0 : v; }, [](float v, float) { return v > 0 ? 1.0f : 0.0f; });
}

Variable sum(const Variable& x, std::int64_t axis) {
  return record(sum(x.value(), axis), {x},
                [shape = x.shape()](const Tensor& dy) { return std::vector{dy.expand(shape)}; });
}

Variable mean(const Variable& x, std::int64_t axis) {
  const Variable total = sum(x, axis);  // which checks the axis
  return scale(total, 1.0f / static_cast<float>(x.shape()[axis]));
}

Variable sum_all(const Variable& x) {
  return record(sum_to(x.value(), {}), {x},
                [shape = x.shape()](const Tensor& dy) { return std::vector{dy.expand(shape)}; });
}

Variable matmul(const Variable& a, const Variable& b) {
  return record(matmul(a.value(), b.value()), {a, b}, [a = a.value(), b = b.value()](const Tensor& dy) {
    const std::int64_t row = dy.rank() - 2, column = dy.rank() - 1;
    return std::vector{matmul(dy, b.transpose(row, column)), matmul(a.transpose(row, column), dy)};
  });
}

Variable reshape(const Variable& x, const Shape& shape) {
  return record(x.value().reshape(shape), {x},
                [before = x.shape()](const Tensor& dy) { return std::vector{dy.reshape(before)}; });
}

Variable transpose(const Variable& x, std::int64_t a, std::int64_t b) {
  return record(x.value().transpose(a, b), {x},
                [=](const Tensor& dy) { return std::vector{dy.transpose(a, b)}; });
}

Variable narrow(const Variable& x, std::int64_t axis, std::int64_t begin, std::int64_t size) {
  return record(x.value().narrow(axis, begin, size), {x}, [=, shape = x.shape()](const Tensor& dy) {
    Tensor dx(shape);
    copy(dy, dx.narrow(axis, begin, size));
    return std::vector{dx};
  });
}

}  // namespace engine
