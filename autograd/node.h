#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>

#include "autograd/grad_mode.h"
#include "autograd/op_listener.h"
#include "kernels/context.h"
#include "tensor/tensor.h"

// The tape. An op computes its result, then calls record() with a closure that turns dL/dy into dL/dx. The
// closure sits in a Node, the Node hangs on the result, and its edges point at the states of the inputs: the
// Node that computed each, or the Leaf that collects its gradient.

namespace athanor {

/// What a tensor that asks for a gradient keeps: the gradient, and who wants to know when it is complete.
class Leaf final : public AutogradState {
 public:
  bool is_leaf() const override { return true; }

  /// Undefined until a backward pass has delivered something.
  Tensor grad() const { return fresh_ ? Tensor() : grad_; }
  void zero() { fresh_ = true; }

  /// Gradients go to `slice` (dense, the leaf's shape) from now on: a part of the gradient arena.
  void bind(Tensor slice) {
    grad_ = std::move(slice);
    bound_ = true;
    fresh_ = true;
  }
  bool bound() const { return bound_; }

  /// Adds a gradient; the first one after zero() replaces what is there.
  void accumulate(const Tensor& gradient);

  /// Where a kernel may write this leaf's gradient itself, and whether it must add. Only if bound().
  std::pair<Tensor, Write> direct() {
    return {grad_, std::exchange(fresh_, false) ? Write::overwrite : Write::accumulate};
  }

  /// Called after each backward pass' last contribution to this leaf.
  std::function<void()> on_ready;
  /// Called when an op that is recorded has read it, by the thread that computes.
  std::function<void()> on_use;

 private:
  friend class Engine;
  friend class Grads;

  Tensor grad_;
  std::uint64_t wanted_ = 0;  // the last pass that was to end in this leaf, of those that name theirs
  bool bound_ = false;
  bool fresh_ = true;  // nothing delivered since zero()

  std::uint64_t pass_ = 0;  // of the engine
  int pending_ = 0;
  int capture_ = -1;
};

class Node;

/// Where a backward closure puts the gradients of its op's inputs.
class Grads {
 public:
  /// `capturing`: the pass collects gradients for the caller of grad() and leaves the leaves' own untouched.
  /// `pass`: of one that names the leaves it ends in; 0: it ends in all.
  Grads(const Node& node, bool capturing, std::uint64_t pass);

  /// False where nobody asks for the gradient of that input.
  bool wants(int input) const;

  /// dx[i] = t hands over the gradient of input i. Left undefined, it counts as zero.
  Tensor& operator[](int input) {
    return input < kInline ? inline_[static_cast<std::size_t>(input)]
                           : spill_[static_cast<std::size_t>(input - kInline)];
  }

  /// What has been handed over of the first inputs, of `inputs` in all: of as many as have room inside.
  std::span<const Tensor> handed_over(int inputs) const {
    return std::span(inline_).first(static_cast<std::size_t>(inputs < kInline ? inputs : kInline));
  }

  /// Where a kernel should write the gradient of input i, shaped like `like`, or add to what is there: the
  /// leaf's slice of the gradient arena; what has been summed up for the input so far, where that may be
  /// written; or a new tensor. Counts as handing it over.
  struct Target {
    Tensor tensor;
    Write write;
  };
  Target target(int input, const Tensor& like);

  /// For an op that touches only a part of its input (a slice, some rows): a dense tensor of the input's
  /// shape, to whose part the op must *add*. It is what has been summed up for the input so far, where that
  /// may be written, so that n slices of one tensor cost the work of one; else new zeros. Counts as handing
  /// it over.
  Tensor accumulator(int input, const Shape& shape, TensorOptions options);

 private:
  static constexpr int kInline = 6;

  /// The leaf, where a kernel may write its gradient itself; else null.
  Leaf* direct_leaf(int input) const;
  /// What has been summed up for an input that is no leaf, where it may be written; else null.
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
  Node(const char* op, std::span<const Tensor* const> inputs);
  Node(const char* op, std::span<const Ref<AutogradState>> edges);

  bool is_leaf() const final { return false; }
  const char* op() const { return op_; }
  /// The layer it was made in, where layers have names (autograd/op_listener.h); else null.
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
  /// A tape may be a million nodes long, each owning the next: they are deleted in a loop, not recursively.
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
  const char* layer_ = detail::current_layer;
  int count_;
  bool released_ = false;
  std::array<Ref<AutogradState>, kInline> inline_;
  PoolVector<Ref<AutogradState>> spill_;
  Node* next_dead_ = nullptr;

  std::uint64_t sequence_;

  std::uint64_t wanted_ = 0;  // as in Leaf: it leads to one
  std::uint64_t pass_ = 0;    // of the engine
  int pending_ = 0;
  int capture_ = -1;
  Tensor grad_;
};

/// A tensor captured by a backward closure. Reading it after an in-place write to the tensor throws, and so
/// does capturing a tensor made in InferenceMode.
///
/// Moving a Saved seals it: record() moves the closure into the node, once, and only if it records. Until
/// then a Saved is a plain handle, so that an op which is not recorded pays nothing.
class Saved {
 public:
  explicit Saved(const Tensor& tensor) : tensor_(tensor) {}
  Saved(Saved&& other) : tensor_(std::move(other.tensor_)), version_(seal(tensor_)), output_(other.output_) {
    if (output_ && tensor_.defined()) tensor_ = tensor_.detach();
  }

  /// The op's own result: the closure keeps its values but not its node, which owns the closure.
  static Saved output(const Tensor& tensor) {
    Saved saved(tensor);
    saved.output_ = true;
    return saved;
  }

  bool defined() const { return tensor_.defined(); }
  const Tensor& get() const {
    if (tensor_.defined() && tensor_.version() != version_) [[unlikely]]
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

/// Nodes made and tensors saved so far on this thread: InferenceMode must add none.
struct TapeCounters {
  std::int64_t nodes = 0;
  std::int64_t saved_tensors = 0;
};
TapeCounters tape_counters();

namespace detail {

template <class Closure> class ClosureNode final : public Node {
 public:
  ClosureNode(const char* op, std::span<const Tensor* const> inputs, Closure&& closure)
      : Node(op, inputs), closure_(std::move(closure)), alive_(true) {}

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

/// Marks results of InferenceMode and, in anomaly mode, checks them; tells who listens.
void finish_result(const char* op, const Tensor& y, std::span<const Tensor* const> inputs);
bool anomaly_mode();

}  // namespace detail

/// Attaches the backward closure `(const Tensor& dy, Grads& dx)` to `y`, the result of `op` on `inputs`, when
/// this thread records and some input needs a gradient. Returns y.
template <class Closure>
Tensor record(const char* op, Tensor y, std::span<const Tensor* const> inputs, Closure&& closure) {
  if (!grad_enabled() || detail::op_listener || detail::anomaly_mode()) [[unlikely]]
    detail::finish_result(op, y, inputs);
  if (!grad_enabled()) return y;
  bool wanted = false;
  for (const Tensor* input : inputs) wanted = wanted || input->requires_grad();
  if (wanted) {
    using Stored = std::remove_cvref_t<Closure>;
    y.set_autograd(make_ref<detail::ClosureNode<Stored>>(op, inputs, std::move(closure)));
  }
  return y;
}

/// An input of record(); undefined tensors (a missing bias) are allowed.
struct Input {
  const Tensor* tensor;
  Input(const Tensor& t) : tensor(&t) {}  // NOLINT: written as a plain list of tensors
};

template <class Closure>
Tensor record(const char* op, Tensor y, std::initializer_list<Input> inputs, Closure&& closure) {
  static_assert(sizeof(Input) == sizeof(const Tensor*));
  // An empty list may begin at null.
  const auto tensors = inputs.size() == 0 ? std::span<const Tensor* const>()
                                          : std::span(&inputs.begin()->tensor, inputs.size());
  return record(op, std::move(y), tensors, std::forward<Closure>(closure));
}

}  // namespace athanor
