// Explained in docs/autograd.md.
#include "autograd/engine.h"

#include <algorithm>
#include <atomic>
#include <memory>

#include "autograd/detail/dense.h"
#include "kernels/copy.h"
#include "kernels/elementwise.h"
#include "kernels/on_device.h"
#include "kernels/reduce.h"

namespace athanor {
namespace {

std::atomic<std::uint64_t> passes{0};

void check_finite(const char* op, const char* direction, int index, const Tensor& tensor) {
  if (!tensor.defined() || !is_floating(tensor.dtype()) || tensor.numel() == 0) return;
  std::int64_t bad = 0;
  // A gradient may be a view that repeats one value.
  on_device(tensor.device(), [&](auto& context) { bad = kernels::count_nonfinite(context, dense(tensor)); });
  if (bad == 0) return;
  const std::string which = index < 0 ? "result" : fmt::format("gradient of input {}", index);
  detail::fail<Error>("{}: {} {} must be finite, but {} of {} values {} are NaN or infinite", op, direction,
                      which, bad, tensor.numel(), tensor.shape());
}

}  // namespace

void AnomalyMode::recorded(const OpCall& op, const Tensor& y, std::span<const Input>) {
  check_finite(op.name, "forward", -1, y);
}

void AnomalyMode::contributed(const char* op, int input, const Tensor& dx) {
  check_finite(op, "backward", input, dx);
}

/// One backward pass. It first counts, for every node that root depends on, the gradients to receive; then it
/// runs nodes whose count has reached zero, latest first. A depth-first walk that passes gradients on at once
/// would be recursive, and wrong: in b = a + a; c = b + b, the node of b must wait for both contributions of
/// c before it passes anything to a.
class Engine {
 public:
  Engine() : work_(borrow()), pass_(passes.fetch_add(1, std::memory_order_relaxed) + 1) {}
  ~Engine() {
    work_->ready.clear();
    work_->stack.clear();
    idle().push_back(std::move(work_));
  }

  /// An additional or alternative destination of gradients.
  struct Capture {
    std::span<AutogradState* const> states;  ///< whose gradients are wanted; null entries are skipped
    std::span<Tensor> gradients;             ///< where they go
    bool boundary = false;  ///< the pass stops at `states`, which may belong to a pass in progress
  };

  void run(const Tensor& root, const Tensor& seed, const Capture* capture, const BackwardOptions& options) {
    const NoGrad no_grad;
    retain_ = options.retain_graph;
    named_ = !options.parameters.empty();
    capture_ = capture;
    for (const Parameter& parameter : options.parameters) {
      if (parameter.tensor.requires_grad()) leaf_of(parameter.tensor).wanted_ = pass_;
    }
    const CaptureScope scope(capture);

    AutogradState& state = *root.autograd();
    if (state.is_leaf()) {
      Leaf& leaf = static_cast<Leaf&>(state);
      check_wanted(state);
      deliver(leaf, seed);
      if (leaf.on_ready && !capture_) leaf.on_ready();
      return;
    }
    Node& last = static_cast<Node&>(state);
    if (stops_at(last)) return add(capture_->gradients[static_cast<std::size_t>(last.capture_)], seed);
    if (named_) find_wanted(last);
    check_wanted(state);
    count_dependencies(last);
    add(last.grad_, seed);
    push(Ref<Node>(&last));
    while (!work_->ready.empty()) step(pop());
  }

  void for_each_leaf(AutogradState& root, const std::function<void(const Leaf&)>& visit_leaf) {
    if (root.is_leaf()) return visit_leaf(static_cast<Leaf&>(root));
    find_nodes(static_cast<Node&>(root));
    for (const Node* node : work_->found) {
      for (int i = 0; i < node->count_; ++i) {
        AutogradState* const state = node->edge(i).get();
        if (!state || !state->is_leaf()) continue;
        if (Leaf& leaf = static_cast<Leaf&>(*state); std::exchange(leaf.pass_, pass_) != pass_)
          visit_leaf(leaf);
      }
    }
  }

 private:
  // Vectors that keep their capacity between passes; several, since checkpoint() runs a pass inside a pass.
  struct Work {
    std::vector<Ref<Node>> ready;  // a heap, latest node on top
    std::vector<Node*> stack, found;
  };

  // Sets the slots of the requested states for the duration of the pass.
  class CaptureScope {
   public:
    explicit CaptureScope(const Capture* capture) : capture_(capture) {
      if (!capture_) return;
      outer_.resize(capture_->states.size());
      for (std::size_t i = 0; i < outer_.size(); ++i) {
        if (AutogradState* state = capture_->states[i])
          outer_[i] = std::exchange(slot_of(*state), static_cast<int>(i));
      }
    }
    ~CaptureScope() {
      for (std::size_t i = outer_.size(); i-- > 0;) {
        if (AutogradState* state = capture_->states[i]) slot_of(*state) = outer_[i];
      }
    }
    CaptureScope(const CaptureScope&) = delete;
    CaptureScope& operator=(const CaptureScope&) = delete;

   private:
    static int& slot_of(AutogradState& state) {
      return state.is_leaf() ? static_cast<Leaf&>(state).capture_ : static_cast<Node&>(state).capture_;
    }
    const Capture* capture_;
    PoolVector<int> outer_;
  };

  bool stops_at(const Node& node) const { return capture_ && capture_->boundary && node.capture_ >= 0; }

  static std::vector<std::unique_ptr<Work>>& idle() {
    thread_local std::vector<std::unique_ptr<Work>> works;
    return works;
  }
  static std::unique_ptr<Work> borrow() {
    if (idle().empty()) return std::make_unique<Work>();
    std::unique_ptr<Work> work = std::move(idle().back());
    idle().pop_back();
    return work;
  }

  static bool earlier(const Ref<Node>& a, const Ref<Node>& b) { return a->sequence_ < b->sequence_; }
  void push(Ref<Node> node) {
    work_->ready.push_back(std::move(node));
    std::push_heap(work_->ready.begin(), work_->ready.end(), earlier);
  }
  Ref<Node> pop() {
    std::pop_heap(work_->ready.begin(), work_->ready.end(), earlier);
    Ref<Node> node = std::move(work_->ready.back());
    work_->ready.pop_back();
    return node;
  }

  /// Whether the pass visits a state: always, or only if it leads to a listed leaf.
  bool wanted(const AutogradState& state) const {
    if (!named_) return true;
    return (state.is_leaf() ? static_cast<const Leaf&>(state).wanted_
                            : static_cast<const Node&>(state).wanted_) == pass_;
  }
  void check_wanted(const AutogradState& root) const {
    ATH_CHECK(wanted(root), "backward: the root must depend on one of the named parameters, but does not");
  }

  static void check_not_released(const Node& node) {
    ATH_CHECK(!node.released_,
              "backward: the graph of {} must still exist, but an earlier backward freed it; pass "
              "retain_graph to that one",
              node.op_);
  }

  /// Lists root and all nodes that it depends on in `found`.
  void find_nodes(Node& root) {
    std::vector<Node*>&stack = work_->stack, &found = work_->found;
    found.clear();
    visit(root);
    stack.push_back(&root);
    while (!stack.empty()) {
      Node& node = *stack.back();
      stack.pop_back();
      check_not_released(node);
      found.push_back(&node);
      for (int i = 0; i < node.count_; ++i) {
        AutogradState* state = node.edge(i).get();
        if (!state || state->is_leaf()) continue;
        if (Node& input = static_cast<Node&>(*state); visit(input)) stack.push_back(&input);
      }
    }
  }

  /// Marks the nodes that lead to a wanted leaf: inputs have lower numbers than their results.
  void find_wanted(Node& root) {
    find_nodes(root);
    std::vector<Node*>& found = work_->found;
    std::sort(found.begin(), found.end(), [](Node* a, Node* b) { return a->sequence_ < b->sequence_; });
    for (Node* node : found) {
      for (int i = 0; i < node->count_; ++i) {
        if (const AutogradState* state = node->edge(i).get(); state && wanted(*state)) node->wanted_ = pass_;
      }
      node->pass_ = 0;  // for the next traversal
    }
  }

  void count_dependencies(Node& root) {
    visit(root);
    std::vector<Node*>& stack = work_->stack;
    stack.push_back(&root);
    while (!stack.empty()) {
      Node& node = *stack.back();
      stack.pop_back();
      check_not_released(node);
      for (int i = 0; i < node.count_; ++i) {
        AutogradState* state = node.edge(i).get();
        if (!state || !wanted(*state)) continue;
        if (state->is_leaf()) {
          if (capture_) continue;  // no hooks in this case
          Leaf& leaf = static_cast<Leaf&>(*state);
          if (std::exchange(leaf.pass_, pass_) != pass_) leaf.pending_ = 0;
          ++leaf.pending_;
        } else {
          Node& input = static_cast<Node&>(*state);
          if (stops_at(input)) continue;
          if (visit(input)) stack.push_back(&input);
          ++input.pending_;
        }
      }
    }
  }

  bool visit(Node& node) {
    if (std::exchange(node.pass_, pass_) == pass_) return false;
    node.pending_ = 0;
    node.grad_ = Tensor();
    return true;
  }

  void step(Ref<Node> node) {
    Grads dx(*node, capture_ != nullptr, named_ ? pass_ : 0);
    if (node->grad_.defined()) {
      if (node->capture_ >= 0 && capture_)
        capture_->gradients[static_cast<std::size_t>(node->capture_)] = node->grad_;
      const Tensor dy = std::exchange(node->grad_, Tensor());
      ObserveScope::for_each([&](OpObserver& one) { one.backward_began(node->op_, node->layer_); });
      node->backward(dy, dx);
      ObserveScope::for_each([&](OpObserver& one) {
        one.backward_ended(node->op_, node->layer_, dy, dx.handed_over(node->count_));
      });
    }
    for (int i = 0; i < node->count_; ++i) {
      AutogradState* state = node->edge(i).get();
      if (!state || !wanted(*state)) continue;
      const Tensor gradient = std::exchange(dx[i], Tensor());
      ObserveScope::for_each([&](OpObserver& one) { one.contributed(node->op_, i, gradient); });
      if (state->is_leaf()) {
        Leaf& leaf = static_cast<Leaf&>(*state);
        deliver(leaf, gradient);
        if (!capture_ && --leaf.pending_ == 0 && leaf.on_ready) leaf.on_ready();
      } else {
        Node& input = static_cast<Node&>(*state);
        if (stops_at(input)) {
          add(capture_->gradients[static_cast<std::size_t>(input.capture_)], gradient);
          continue;
        }
        add(input.grad_, gradient);
        if (--input.pending_ == 0) push(Ref<Node>(&input));
      }
    }
    if (!retain_) node->free_graph();
  }

  void deliver(Leaf& leaf, const Tensor& gradient) {
    if (!gradient.defined()) return;
    if (!capture_) return leaf.accumulate(gradient);
    if (leaf.capture_ >= 0) add(capture_->gradients[static_cast<std::size_t>(leaf.capture_)], gradient);
  }

  static void add(Tensor& total, const Tensor& gradient) {
    if (!gradient.defined()) return;
    if (!total.defined()) {
      total = gradient;
      return;
    }
    on_device(total.device(), [&](auto& context) {
      if (total.unshared() && total.is_contiguous()) {
        kernels::add_into(context, gradient, total);
        return;
      }
      const Tensor sum = Tensor::empty(total.shape(), total.options());
      kernels::binary_forward<kernels::Add>(context, total, gradient, sum);
      total = sum;
    });
  }

  std::unique_ptr<Work> work_;
  std::uint64_t pass_;
  bool retain_ = false;
  bool named_ = false;  // leaves are listed in BackwardOptions::parameters
  const Capture* capture_ = nullptr;
};

namespace {

void start(const Tensor& root, const Tensor& seed, const Engine::Capture* capture,
           const BackwardOptions& options) {
  ATH_CHECK(root.defined() && root.requires_grad(),
            "backward: the root must depend on a tensor that needs a gradient, but does not");
  Tensor dy = seed;
  if (dy.defined()) {
    ATH_CHECK(dy.shape() == root.shape() && dy.device() == root.device() && dy.dtype() == root.dtype(),
              "backward: the seed must be {} {}, but got {} {}", root.dtype(), root.shape(), dy.dtype(),
              dy.shape());
    dy = dy.detach();
  } else {
    ATH_CHECK(root.numel() == 1,
              "backward: a root of shape {} needs a seed; only a root of one element can omit it",
              root.shape());
    dy = Tensor::empty(root.shape(), root.options());
    on_device(dy.device(), [&](auto& context) { kernels::fill(context, dy, 1.0); });
  }
  Engine().run(root, dy, capture, options);
}

}  // namespace

namespace detail {

void backward_to(const Tensor& root, const Tensor& seed, std::span<AutogradState* const> states,
                 std::span<Tensor> gradients) {
  const Engine::Capture capture{states, gradients, true};
  Engine().run(root, seed, &capture, {});
}

}  // namespace detail

void backward(const Tensor& root, const Tensor& seed, BackwardOptions options) {
  start(root, seed, nullptr, options);
}

std::vector<Tensor> grad(const Tensor& root, std::span<const Tensor> inputs, const Tensor& seed,
                         BackwardOptions options) {
  std::vector<Tensor> gradients(inputs.size());
  PoolVector<AutogradState*> states(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    states[i] = inputs[i].requires_grad() ? inputs[i].autograd().get() : nullptr;
  const Engine::Capture capture{states, gradients};
  start(root, seed, &capture, options);
  // For a repeated input, the last occurrence has the captured gradient.
  for (std::size_t i = inputs.size(); i-- > 0;) {
    for (std::size_t j = i + 1; j < inputs.size() && !gradients[i].defined(); ++j) {
      if (states[i] && states[i] == states[j]) gradients[i] = gradients[j];
    }
  }
  return gradients;
}

void for_each_leaf(const Tensor& root, const std::function<void(const Leaf&)>& visit) {
  if (root.defined() && root.requires_grad()) Engine().for_each_leaf(*root.autograd(), visit);
}

Leaf& leaf_of(const Tensor& x) {
  ATH_CHECK(x.requires_grad() && x.autograd()->is_leaf(),
            "leaf: tensor must be a leaf that needs a gradient, but is not");
  return static_cast<Leaf&>(*x.autograd());
}

const Tensor& require_grad(const Tensor& x) {
  ATH_CHECK(x.defined(), "require_grad: tensor must be defined, but is not");
  ATH_CHECK(is_floating(x.dtype()), "require_grad: tensor must be floating, but is {}", x.dtype());
  ATH_CHECK(!x.is_inference(),
            "require_grad: tensor must not come from InferenceMode, but {} created it there", x.made_by());
  if (x.requires_grad()) {
    ATH_CHECK(x.autograd()->is_leaf(),
              "require_grad: tensor must be a leaf, but was computed; detach() it first");
    return x;
  }
  x.set_autograd(make_ref<Leaf>());
  return x;
}

void forget_grad(const Tensor& x) {
  if (x.requires_grad()) leaf_of(x), x.set_autograd(nullptr);
}

Tensor grad_of(const Tensor& leaf) {
  return leaf_of(leaf).grad();
}
void zero_grad(const Tensor& leaf) {
  leaf_of(leaf).zero();
}
void on_grad_ready(const Tensor& leaf, std::function<void()> ready) {
  leaf_of(leaf).on_ready = std::move(ready);
}

}  // namespace athanor
