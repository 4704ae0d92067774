#include "autograd/checkpoint.h"

#include <algorithm>
#include <optional>

#include "autograd/detail/replay_random.h"
#include "autograd/engine.h"
#include "autograd/node.h"
#include "kernels/on_device.h"

// fn runs twice: at once, and again when its gradient is needed. The first run is also recorded, and its
// graph traversed. Everything it reaches outside fn (weights, captured tensors) becomes an input of a single
// node, next to x. So the engine knows the node's inputs: it waits for all contributions, calls each leaf's
// hook once, and grad() works through a checkpoint. The graph of the first run and its saved tensors are
// dropped at once: a checkpoint keeps only x, and one segment's graph exists at a time.

namespace athanor {
namespace {

using Checkpointed = std::function<Tensor(const Tensor&)>;
using States = PoolVector<Ref<AutogradState>>;

// Runs and records fn on x as a separate leaf.
struct Run {
  Tensor x, y;

  Run(const Checkpointed& fn, const Tensor& input, bool differentiable) : x(input.detach()) {
    const EnableGrad grad;
    if (differentiable) require_grad(x);
    y = fn(x);
    ATH_CHECK(y.defined(), "checkpoint: the function must return a tensor, but returned an undefined one");
  }
};

// The states outside fn that the graph of `run` reaches; nodes created before `first` are outside.
States outside_of(const Run& run, std::uint64_t first) {
  States outside;
  PoolVector<AutogradState*> seen, stack;
  const auto visit = [&](const Ref<AutogradState>& state) {
    if (!state || state == run.x.autograd()) return;
    const auto at = std::lower_bound(seen.begin(), seen.end(), state.get());
    if (at != seen.end() && *at == state.get()) return;
    seen.insert(at, state.get());
    if (state->is_leaf() || static_cast<const Node&>(*state).sequence() < first) {
      outside.push_back(state);
    } else {
      stack.push_back(state.get());
    }
  };
  visit(run.y.autograd());
  while (!stack.empty()) {
    const Node& node = static_cast<const Node&>(*stack.back());
    stack.pop_back();
    for (int i = 0; i < node.inputs(); ++i) visit(node.edge(i));
  }
  return outside;
}

class CheckpointNode final : public Node {
 public:
  CheckpointNode(const Checkpointed& fn, const Tensor& x, const States& edges, std::int64_t random_ops)
      : Node("checkpoint", std::span(edges)), fn_(fn), x_(Saved(x)), random_ops_(random_ops) {}

 private:
  void backward(const Tensor& dy, Grads& dx) override {
    const Recomputing recomputing;
    const detail::ReplayRandom replay(dy.device(), random_ops_);
    const Run run(fn_, x_->get(), static_cast<bool>(edge(0)));
    if (!run.y.requires_grad()) return;
    ATH_CHECK(run.y.shape() == dy.shape() && run.y.dtype() == dy.dtype(),
              "checkpoint: the function must compute the same again, but returned {} {} after {} {}",
              run.y.dtype(), run.y.shape(), dy.dtype(), dy.shape());
    PoolVector<AutogradState*> states;
    PoolVector<Tensor> gradients(static_cast<std::size_t>(inputs()));
    states.push_back(run.x.autograd().get());
    for (int i = 1; i < inputs(); ++i) states.push_back(edge(i).get());
    detail::backward_to(run.y, dy, states, gradients);
    for (int i = 0; i < inputs(); ++i) {
      if (dx.needs(i)) dx[i] = gradients[static_cast<std::size_t>(i)];
    }
  }

  void release_saved() override {
    fn_ = nullptr;
    x_.reset();
  }

  Checkpointed fn_;
  std::optional<Saved> x_;
  std::int64_t random_ops_;
};

}  // namespace

Tensor checkpoint(const Checkpointed& fn, const Tensor& x) {
  ATH_CHECK(fn && x.defined(), "checkpoint: function and tensor must be defined, but are not both");
  if (!grad_enabled()) return fn(x);
  const std::int64_t random_ops = on_device(x.device(), [](auto& context) { return context.random_ops(); });
  const std::uint64_t first = Node::next_sequence();
  States edges{x.requires_grad() ? x.autograd() : Ref<AutogradState>()};
  Tensor y;
  {
    const Run run(fn, x, x.requires_grad());
    y = run.y.detach();
    if (!run.y.requires_grad()) return y;
    for (const Ref<AutogradState>& state : outside_of(run, first)) edges.push_back(state);
  }
  y.set_autograd(make_ref<CheckpointNode>(fn, x, edges, random_ops));
  return y;
}

}  // namespace athanor
