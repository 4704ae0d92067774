#include "autograd/node.h"

#include "kernels/copy.h"
#include "kernels/on_device.h"

namespace athanor {
namespace {

thread_local TapeCounters counters;
thread_local const char* recording = "";
std::atomic<std::uint64_t> created{1};

// The node being deleted on this thread, and those waiting for deletion.
thread_local bool deleting = false;
thread_local Node* dead = nullptr;

}  // namespace

TapeCounters tape_counters() {
  return counters;
}

void detail::report(const OpCall& op, const Tensor& y, std::span<const Input> inputs) {
  ObserveScope::for_each([&](OpObserver& observer) { observer.recorded(op, y, inputs); });
}

// Leaf -----------------------------------------------------------------------------------------------------

Leaf::Leaf() : sequence_(created.fetch_add(1, std::memory_order_relaxed)) {}

void Leaf::accumulate(const Tensor& gradient) {
  if (bound_ && gradient.same_as(grad_)) return;  // a kernel wrote it through direct()
  const bool first = std::exchange(fresh_, false);
  if (first && !bound_) {
    // The tensor may be shared with other edges, so it is reused only if there is no other handle.
    if (gradient.is_contiguous() && gradient.unshared()) {
      grad_ = gradient;
      return;
    }
    grad_ = Tensor::empty(gradient.shape(), gradient.options());
  }
  on_device(grad_.device(), [&](auto& context) {
    if (first) {
      kernels::copy(context, gradient, grad_);
    } else {
      kernels::add_into(context, gradient, grad_);
    }
  });
  grad_.bump_version();
}

// Grads ----------------------------------------------------------------------------------------------------

namespace {

/// Whether a gradient can be accumulated in place.
bool is_writable(const Tensor& sum, DType dtype) {
  return sum.defined() && sum.unshared() && sum.is_contiguous() && sum.dtype() == dtype;
}

bool each_is_observed() {
  return ObserveScope::any([](const OpObserver& observer) { return observer.needs_each_gradient(); });
}

}  // namespace

Grads::Grads(const Node& node, bool capturing, std::uint64_t pass)
    : node_(node), capturing_(capturing), pass_(pass) {
  if (node.inputs() > kInline) spill_.resize(static_cast<std::size_t>(node.inputs() - kInline));
}

bool Grads::needs(int input) const {
  const AutogradState* edge = node_.edge(input).get();
  if (!edge) return false;
  if (!edge->is_leaf()) return pass_ == 0 || static_cast<const Node*>(edge)->wanted_ == pass_;
  const auto& leaf = static_cast<const Leaf&>(*edge);
  return capturing_ ? leaf.capture_ >= 0 : pass_ == 0 || leaf.wanted_ == pass_;
}

Leaf* Grads::direct_leaf(int input) const {
  AutogradState* edge = node_.edge(input).get();
  return edge && edge->is_leaf() && !capturing_ && needs(input) ? static_cast<Leaf*>(edge) : nullptr;
}

// Gradients captured for the caller may belong to an outer pass.
Tensor* Grads::writable_sum(int input, DType dtype) const {
  AutogradState* const edge = node_.edge(input).get();
  if (!edge || edge->is_leaf() || each_is_observed()) return nullptr;
  Node& node = static_cast<Node&>(*edge);
  if (capturing_ && node.capture_ >= 0) return nullptr;
  return is_writable(node.grad_, dtype) ? &node.grad_ : nullptr;
}

Grads::Target Grads::target(int input, const Tensor& like) {
  if (const Tensor* const sum = writable_sum(input, like.dtype())) return {*sum, Write::accumulate};
  Tensor& slot = (*this)[input];
  if (Leaf* leaf = direct_leaf(input); leaf && leaf->bound()) {
    const auto [slice, write] = leaf->direct();
    slot = slice;
    return {slice, write};
  }
  slot = Tensor::empty(like.shape(), like.options());
  return {slot, Write::overwrite};
}

Grads::LastPart Grads::last_part(int input) const {
  AutogradState* const edge = node_.edge(input).get();
  if (!edge || edge->is_leaf() || each_is_observed()) return {};
  Node& node = static_cast<Node&>(*edge);
  if (node.pending_ != 1 || (capturing_ && node.capture_ >= 0)) return {};
  return {&node, node.grad_};
}

void Grads::conclude(int input, const Tensor& gradient) const {
  static_cast<Node&>(*node_.edge(input)).grad_ = gradient;
}

Tensor Grads::accumulator(int input, const Shape& shape, TensorOptions options) {
  if (const Tensor* const sum = writable_sum(input, options.dtype)) return *sum;
  Tensor& slot = (*this)[input];
  if (Leaf* const direct = direct_leaf(input)) {
    Leaf& leaf = *direct;
    if (leaf.bound() && leaf.grad_.dtype() == options.dtype) {
      const auto [slice, write] = leaf.direct();
      if (write == Write::overwrite)
        on_device(slice.device(), [&, &zeroed = slice](auto& context) { kernels::fill(context, zeroed, 0); });
      slot = slice;
      return slice;
    }
    if (!leaf.bound() && !leaf.fresh_ && is_writable(leaf.grad_, options.dtype) && !each_is_observed()) {
      leaf.grad_.bump_version();
      return leaf.grad_;
    }
  }
  slot = Tensor::zeros(shape, options);
  return slot;
}

// Node -----------------------------------------------------------------------------------------------------

std::uint64_t Node::next_sequence() {
  return created.load(std::memory_order_relaxed);
}

Node::Node(const char* op, std::span<const Input> inputs)
    : op_(op), count_(0), sequence_(created.fetch_add(1, std::memory_order_relaxed)) {
  ++counters.nodes;
  recording = op;
  for (const Input& input : inputs) count_ += input.has_gradient;
  if (count_ > kInline) spill_.resize(static_cast<std::size_t>(count_ - kInline));
  int edge = 0;
  for (const Input& input : inputs) {
    if (!input.has_gradient) continue;
    if (input.tensor->requires_grad()) set_edge(edge, input.tensor->autograd());
    ++edge;
  }
}

Node::Node(const char* op, std::span<const Ref<AutogradState>> edges)
    : op_(op),
      count_(static_cast<int>(edges.size())),
      sequence_(created.fetch_add(1, std::memory_order_relaxed)) {
  ++counters.nodes;
  recording = op;
  if (count_ > kInline) spill_.resize(static_cast<std::size_t>(count_ - kInline));
  for (int i = 0; i < count_; ++i) set_edge(i, edges[static_cast<std::size_t>(i)]);
}

void Node::set_edge(int i, const Ref<AutogradState>& state) {
  if (state && state->is_leaf()) {
    const auto& leaf = static_cast<const Leaf&>(*state);
    if (leaf.on_use) [[unlikely]]
      leaf.on_use();
  }
  (i < kInline ? inline_[static_cast<std::size_t>(i)] : spill_[static_cast<std::size_t>(i - kInline)]) =
      state;
}

void Node::free_graph() {
  released_ = true;
  release_saved();
  grad_ = Tensor();
  for (Ref<AutogradState>& edge : inline_) edge = nullptr;
  spill_.clear();
}

void Node::dispose() noexcept {
  next_dead_ = std::exchange(dead, this);
  if (std::exchange(deleting, true)) return;
  while (dead) delete std::exchange(dead, dead->next_dead_);
  deleting = false;
}

// Saved ----------------------------------------------------------------------------------------------------

std::uint32_t Saved::seal(const Tensor& tensor) {
  if (!tensor.defined()) return 0;
  ++counters.saved_tensors;
  ATH_CHECK(!tensor.is_inference(),
            "{}: a tensor saved for the backward pass must not come from InferenceMode, but this {} was "
            "created there by {}; compute it outside, or use NoGrad there",
            recording, tensor.shape(), tensor.made_by());
  return tensor.version();
}

void Saved::modified() const {
  detail::fail<>(
      "backward: a tensor saved for backward must not change, but this {} {} was modified in place "
      "(version {}, saved at {})",
      tensor_.dtype(), tensor_.shape(), tensor_.version(), version_);
}

}  // namespace athanor
