#pragma once  // Explained in docs/autograd.md.

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "autograd/grad_mode.h"
#include "autograd/op_observer.h"
#include "kernels/context.h"
#include "tensor/tensor.h"

// The tape. An op computes its result, then calls record() with a closure that turns dL/dy into dL/dx. A Node
// owns the closure and is attached to the result. Its edges point at the states of the inputs: the Node that
// computed each, or the Leaf that collects its gradient.

namespace athanor {

/// State of a tensor that collects its gradient: the gradient, and hooks for when it is complete.
class Leaf final : public AutogradState {
 public:
  Leaf();
  bool is_leaf() const override { return true; }

  /// Undefined before the first contribution of a backward pass.
  Tensor grad() const { return fresh_ ? Tensor() : grad_; }
  void zero() { fresh_ = true; }

  /// Stores the gradient in `slice` (dense, the leaf's shape) from now on: a slice of the gradient arena.
  void bind(Tensor slice) {
    grad_ = std::move(slice);
    bound_ = true;
    fresh_ = true;
  }
  bool bound() const { return bound_; }

  /// Adds a gradient; the first one after zero() overwrites the current one.
  void accumulate(const Tensor& gradient);

  /// Where a kernel may write this leaf's gradient directly, and whether it must add. Only if bound().
  std::pair<Tensor, Write> direct() {
    return {grad_, std::exchange(fresh_, false) ? Write::overwrite : Write::accumulate};
  }

  /// The gradient's slice, if bound().
  const Tensor& slice() const { return grad_; }
  /// Leaves are numbered with the nodes, in the order of creation.
  std::uint64_t sequence() const { return sequence_; }

  /// Of a module's parameter, for messages: "'weight' [8, 3] of athanor::nn::Linear"; else empty.
  std::string owner;
  /// Called after the last contribution of each backward pass to this leaf.
  std::function<void()> on_ready;
  /// Called when a recorded op has read the leaf, on the computing thread.
  std::function<void()> on_use;

 private:
  friend class Engine;
  friend class Grads;

  Tensor grad_;
  std::uint64_t wanted_ = 0;  // the last pass with an explicit list of leaves that included this one
  bool bound_ = false;
  bool fresh_ = true;  // no contribution since zero()
  const std::uint64_t sequence_;

  std::uint64_t pass_ = 0;  // of the engine
  int pending_ = 0;
  int capture_ = -1;
};

class Node;

/// Collects the gradients of an op's inputs from its backward closure.
class Grads {
 public:
  /// `capturing`: the pass collects gradients for the caller of grad() and leaves the leaves' own unchanged.
  /// `pass`: the number of a pass with an explicit list of leaves; 0: all leaves collect.
  Grads(const Node& node, bool capturing, std::uint64_t pass);

  /// False if no leaf needs the gradient of that input.
  bool needs(int input) const;

  /// dx[i] = t sets the gradient of input i. An undefined one counts as zero.
  Tensor& operator[](int input) {
    return input < kInline ? inline_[static_cast<std::size_t>(input)]
                           : spill_[static_cast<std::size_t>(input - kInline)];
  }

  /// The gradients set so far for the first of `inputs` inputs, up to the kInline stored inline.
  std::span<const Tensor> handed_over(int inputs) const {
    return std::span(inline_).first(static_cast<std::size_t>(inputs < kInline ? inputs : kInline));
  }

  /// Where a kernel should write the gradient of input i, shaped like `like`, or add to the current value. It
  /// is the leaf's slice of the gradient arena, the input's current sum if writable, or a new tensor. Counts
  /// as setting dx[i].
  struct Target {
    Tensor tensor;
    Write write;
  };
  Target target(int input, const Tensor& like);

  /// The op that made an input, for one that contributes the last part of its gradient and can begin its
  /// backward pass along with that. Null if this is not the last part, or if others see that gradient.
  struct LastPart {
    Node* to = nullptr;
    Tensor others;  ///< what has been contributed; undefined: nothing
  };
  LastPart last_part(int input) const;
  /// `gradient` becomes what that op gets instead of the sum of all contributions.
  void conclude(int input, const Tensor& gradient) const;

  /// For an op that reads only a part of its input (a slice, some rows): a dense tensor of the input's shape,
  /// to which the op must *add*. It is the input's current sum if writable, so n slices of one tensor cost as
  /// much as one; else new zeros. Counts as setting dx[i].
  Tensor accumulator(int input, const Shape& shape, TensorOptions options);

 private:
  static constexpr int kInline = 6;

  /// The leaf, if a kernel may write its gradient directly; else null.
  Leaf* direct_leaf(int input) const;
  /// The current sum of an input that is not a leaf, if writable; else null.
  Tensor* writable_sum(int input, DType dtype) const;

  const Node& node_;
  bool capturing_;
  std::uint64_t pass_;
  std::array<Tensor, kInline> inline_;
  PoolVector<Tensor> spill_;
};

/// One recorded operation.
class Node : public AutogradState {
 public:
  /// An edge for each input that can get a gradient.
  Node(const char* op, std::span<const Input> inputs);
  Node(const char* op, std::span<const Ref<AutogradState>> edges);

  bool is_leaf() const final { return false; }
  const char* op() const { return op_; }
  /// The named layer that was current at creation (LayerScope); else null.
  const char* layer() const { return layer_; }
  int inputs() const { return count_; }
  /// Nodes are numbered in the order of their creation; backward runs the latest first.
  std::uint64_t sequence() const { return sequence_; }
  /// The number the next node will get.
  static std::uint64_t next_sequence();
  const Ref<AutogradState>& edge(int i) const {
    return i < kInline ? inline_[static_cast<std::size_t>(i)] : spill_[static_cast<std::size_t>(i - kInline)];
  }

 protected:
  ~Node() override = default;
  /// A tape may have a million nodes, each owning the next: they are deleted in a loop, not recursively.
  void dispose() noexcept final;

  virtual void backward(const Tensor& dy, Grads& dx) = 0;
  /// Drops the closure and what it saved.
  virtual void release_saved() = 0;

 private:
  friend class Engine;
  friend class Grads;
  static constexpr int kInline = 4;

  void set_edge(int i, const Ref<AutogradState>& state);
  void free_graph();

  const char* op_;
  const char* layer_ = LayerScope::innermost();
  int count_;
  bool released_ = false;
  std::array<Ref<AutogradState>, kInline> inline_;
  PoolVector<Ref<AutogradState>> spill_;
  Node* next_dead_ = nullptr;

  std::uint64_t sequence_;

  std::uint64_t wanted_ = 0;  // as in Leaf: the node leads to such a leaf
  std::uint64_t pass_ = 0;    // of the engine
  int pending_ = 0;
  int capture_ = -1;
  Tensor grad_;
};

/// A tensor captured by a backward closure. Reading it after an in-place write to the tensor throws; so does
/// capturing a tensor made in InferenceMode.
///
/// Moving a Saved seals it: record() moves the closure into the node, once, and only if it records. Before
/// that a Saved is a plain handle, so an op that is not recorded costs nothing.
class Saved {
 public:
  explicit Saved(const Tensor& tensor) : tensor_(tensor) {}
  Saved(Saved&& other) : tensor_(std::move(other.tensor_)), version_(seal(tensor_)), output_(other.output_) {
    if (output_ && tensor_.defined()) tensor_ = tensor_.detach();
  }

  /// For the op's own result: keeps the values but not the node, which owns the closure.
  static Saved output(const Tensor& tensor) {
    Saved saved(tensor);
    saved.output_ = true;
    return saved;
  }

  bool defined() const { return tensor_.defined(); }
  /// Whether get() returns: the values are those that were saved.
  bool intact() const { return !tensor_.defined() || tensor_.version() == version_; }
  const Tensor& get() const {
    if (!intact()) [[unlikely]]
      modified();
    return tensor_;
  }
  operator const Tensor&() const { return get(); }

 private:
  static std::uint32_t seal(const Tensor& tensor);
  [[noreturn]] void modified() const;

  Tensor tensor_;
  std::uint32_t version_ = 0;
  bool output_ = false;
};

/// Nodes made and tensors saved so far on this thread. InferenceMode must not add any.
struct TapeCounters {
  std::int64_t nodes = 0;
  std::int64_t saved_tensors = 0;
};
TapeCounters tape_counters();

namespace detail {

template <class Closure, class Base = Node> class ClosureNode final : public Base {
 public:
  ClosureNode(const char* op, std::span<const Input> inputs, Closure&& closure)
      : Base(op, inputs), closure_(std::move(closure)), alive_(true) {}

 private:
  ~ClosureNode() override { release_saved(); }
  void backward(const Tensor& dy, Grads& dx) override { closure_(dy, dx); }
  void release_saved() override {
    if (std::exchange(alive_, false)) closure_.~Closure();
  }

  union {
    Closure closure_;
  };
  bool alive_;
};

/// Notifies the observers of this thread.
void report(const OpCall& op, const Tensor& y, std::span<const Input> inputs);

}  // namespace detail

/// Whether record() would attach a closure, for these inputs.
inline bool records(std::span<const Input> inputs) {
  bool wanted = false;
  for (const Input& input : inputs) wanted = wanted || (input.has_gradient && input.tensor->requires_grad());
  return wanted && grad_enabled();
}
inline bool records(std::initializer_list<Input> inputs) {
  return records(std::span(inputs.begin(), inputs.size()));
}

/// What an op calls once it has computed `y` from `inputs`. Notifies the observers of this thread and, when
/// it records and some input needs a gradient, attaches the backward closure `(const Tensor& dy, Grads& dx)`
/// to y. Returns y. `Base`: a class of nodes that other ops can tell from the rest.
template <class Base = Node, class Closure>
Tensor record(const OpCall& op, Tensor y, std::span<const Input> inputs, Closure&& closure) {
  if (inference_mode() && !grad_enabled()) [[unlikely]]
    y.mark_inference(op.name);
  if (ObserveScope::active()) [[unlikely]]
    detail::report(op, y, inputs);
  if (records(inputs)) {
    using Stored = std::remove_cvref_t<Closure>;
    y.set_autograd(make_ref<detail::ClosureNode<Stored, Base>>(op.name, inputs, std::move(closure)));
  }
  return y;
}
template <class Base = Node, class Closure>
Tensor record(const OpCall& op, Tensor y, std::initializer_list<Input> inputs, Closure&& closure) {
  return record<Base>(op, std::move(y), std::span(inputs.begin(), inputs.size()),
                      std::forward<Closure>(closure));
}

/// The same for an op without gradients, as a comparison.
inline Tensor record(const OpCall& op, Tensor y, std::initializer_list<Input> inputs) {
  if (ObserveScope::active()) [[unlikely]] {
    OpCall call = op;
    call.has_gradient = false;
    detail::report(call, y, std::span(inputs.begin(), inputs.size()));
  }
  return y;
}

}  // namespace athanor
