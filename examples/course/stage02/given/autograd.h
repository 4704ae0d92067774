#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tensor.h"

namespace engine {

class Variable;

/// One operation on the tape: which variables it read, and how the gradient of its result becomes theirs.
struct Node {
  std::vector<Variable> inputs;
  /// The gradient of each input, in their order and with their shapes, from that of the result. backward()
  /// throws std::logic_error if there are more or fewer, or a shape is another.
  std::function<std::vector<Tensor>(const Tensor& dy)> backward;
};

/// A tensor in a graph of operations. Copies are the same variable: they share value and gradient.
class Variable {
 public:
  Variable() = default;
  /// A leaf: a parameter if requires_grad, otherwise data.
  explicit Variable(Tensor value, bool requires_grad = false);

  Tensor& value() const { return state_->value; }
  const Shape& shape() const { return state_->value.shape(); }
  bool requires_grad() const { return state_->requires_grad; }
  /// The gradient of the last backward(), or the sum of several; no elements if there was none.
  Tensor& grad() const { return state_->grad; }
  void clear_grad() const { state_->grad = Tensor(); }
  /// Null for a leaf, and after release().
  const std::shared_ptr<Node>& node() const { return state_->node; }
  /// Forgets how this value was computed: what only the tape holds is freed.
  void release() const {
    state_->released |= state_->node != nullptr;
    state_->node.reset();
  }
  /// Whether this was the result of an operation until release(): a leaf is not.
  bool released() const { return state_->released; }
  bool same_as(const Variable& other) const { return state_ == other.state_; }

 private:
  friend Variable record(Tensor value, std::vector<Variable> inputs, decltype(Node::backward) backward);
  struct State {
    Tensor value, grad;
    bool requires_grad = false, released = false;
    std::shared_ptr<Node> node;
  };
  std::shared_ptr<State> state_;
};

/// A result. It is recorded on the tape if any input requires a gradient and recording is on; otherwise it is
/// data.
Variable record(Tensor value, std::vector<Variable> inputs, decltype(Node::backward) backward);

/// While one of these is alive on a thread, that thread records nothing.
class NoGrad {
 public:
  NoGrad();
  ~NoGrad();
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
};
bool is_recording();

/// Adds d(loss)/d(leaf) to the gradient of every leaf that requires one. loss has one element; `seed` is its
/// own gradient, also if it is a leaf. Each node runs once, after all nodes that read its result; then it is
/// released. A second backward() through a released result throws std::logic_error: "backward: this part of
/// the tape has been used". Works for graphs of a million nodes in a row.
void backward(const Variable& loss, float seed = 1.0f);

/// Called by backward() for each leaf when its gradient is complete, in the order in which they complete.
using GradHook = std::function<void(const Variable& leaf)>;
void backward(const Variable& loss, float seed, const GradHook& ready);

// Operations; those of two operands broadcast, and sum the gradient back to each operand's shape.
Variable add(const Variable& a, const Variable& b);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable div(const Variable& a, const Variable& b);
Variable scale(const Variable& x, float factor);
Variable exp(const Variable& x);
Variable log(const Variable& x);
Variable sqrt(const Variable& x);
/// The gradient is 0 where x is 0. A NaN stays NaN.
Variable relu(const Variable& x);
/// Sums and means over one axis, kept with size 1.
Variable sum(const Variable& x, std::int64_t axis);
Variable mean(const Variable& x, std::int64_t axis);
/// The sum of all elements, of shape {}.
Variable sum_all(const Variable& x);
Variable matmul(const Variable& a, const Variable& b);
Variable reshape(const Variable& x, const Shape& shape);
Variable transpose(const Variable& x, std::int64_t a, std::int64_t b);
Variable narrow(const Variable& x, std::int64_t axis, std::int64_t begin, std::int64_t size);

}  // namespace engine
