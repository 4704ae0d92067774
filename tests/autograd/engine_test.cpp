#include <optional>

#include "autograd/checkpoint.h"
#include "autograd/compare.h"
#include "autograd/dropout.h"
#include "kernels/cpu/context.h"
#include "tests/support/count_new.h"
#include "tests/support/ops.h"

namespace athanor::engine_test {

Tensor leaf(std::vector<float> values) {
  const auto n = static_cast<std::int64_t>(values.size());
  Tensor x = Tensor::from(values, {n});
  require_grad(x);
  return x;
}

std::vector<double> values_of(const Tensor& x) {
  return x.to_vector();
}

TEST(Engine, WaitsForEveryContribution) {
  // The classic mistake hands b's gradient on before c's second contribution has arrived.
  const Tensor a = leaf({1, 2});
  const Tensor b = a + a;
  const Tensor c = b + b;
  backward(c, Tensor::from(std::vector<float>{1, 1}, {2}));
  EXPECT_EQ(values_of(grad_of(a)), (std::vector<double>{4, 4}));
}

TEST(Engine, AccumulatesUntilZeroed) {
  const Tensor a = leaf({3});
  backward(a * a);
  EXPECT_EQ(grad_of(a).item(), 6);
  backward(a * a);
  EXPECT_EQ(grad_of(a).item(), 12);
  zero_grad(a);
  EXPECT_FALSE(grad_of(a).defined());
  backward(a * a);
  EXPECT_EQ(grad_of(a).item(), 6);
}

TEST(Engine, MillionNodesRunAndDropWithoutRecursion) {
  const Tensor a = leaf({1});
  for (const bool run : {true, false}) {
    Tensor y = a + a;
    for (int i = 1; i < 1'000'000; ++i) y = y + a;
    if (run) {
      backward(y);
      EXPECT_EQ(grad_of(a).item(), 1'000'001);
    }
  }
}

TEST(Engine, SecondPassNeedsRetainGraph) {
  const Tensor a = leaf({2});
  const Tensor y = a * a;
  backward(y, {}, {.retain_graph = true});
  backward(y);
  EXPECT_EQ(grad_of(a).item(), 8);
  EXPECT_THROW(backward(y), ArgumentError);
}

TEST(Engine, SavedTensorWrittenInPlaceIsAnError) {
  const Tensor a = leaf({2});
  const Tensor y = a * a;
  a.bump_version();
  EXPECT_THROW(backward(y), ArgumentError);
}

TEST(Engine, InferenceModeRecordsNothing) {
  const Tensor a = leaf({2});
  const TapeCounters before = tape_counters();
  Tensor y;
  {
    const InferenceMode inference;
    y = relu(a * a);
  }
  EXPECT_EQ(tape_counters().nodes, before.nodes);
  EXPECT_EQ(tape_counters().saved_tensors, before.saved_tensors);
  EXPECT_FALSE(y.requires_grad());
  EXPECT_NO_THROW(a + y);
  EXPECT_THROW(a * y, ArgumentError);
}

// As checkpoint() does when a backward pass runs there.
TEST(Engine, RecordsInInferenceModeWhereGradIsEnabled) {
  const Tensor a = leaf({2});
  const InferenceMode inference;
  const EnableGrad grad;
  backward(relu(a * a));
  EXPECT_EQ(grad_of(a).item(), 4);
}

// grad()
// ------------------------------------------------------------------------------------------------------

TEST(Grad, GivesLeavesAndIntermediatesAndTouchesNoLeaf) {
  const Tensor a = leaf({3}), b = leaf({5}), unused = leaf({7});
  const Tensor c = a * b, y = c * a;
  const std::vector<Tensor> g = grad(y, std::array{a, c, b, unused, a, y, Tensor()});
  EXPECT_EQ(g[0].item(), 30);  // d(a^2 b)/da
  EXPECT_EQ(g[1].item(), 3);
  EXPECT_EQ(g[2].item(), 9);
  EXPECT_FALSE(g[3].defined());
  EXPECT_EQ(g[4].item(), 30);
  EXPECT_EQ(g[5].item(), 1);
  EXPECT_FALSE(g[6].defined());
  for (const Tensor& x : {a, b, unused}) EXPECT_FALSE(grad_of(x).defined());
  backward(a * b);  // nothing of the capture stays behind
  EXPECT_EQ(grad_of(a).item(), 5);
}

TEST(Grad, SeedScalesAndStaysUntouched) {
  const Tensor a = leaf({1, 2}), seed = Tensor::from(std::vector<float>{10, 100}, {2});
  EXPECT_EQ(values_of(grad(a * a, std::array{a}, seed)[0]), (std::vector<double>{20, 400}));
  backward(a + a, seed);
  backward(a + a, seed);
  EXPECT_EQ(values_of(seed), (std::vector<double>{10, 100}));
}

// Leaves
// ------------------------------------------------------------------------------------------------------

TEST(Leaf, HookFiresOncePerPassAfterTheLastContribution) {
  const Tensor a = leaf({1}), b = leaf({2}), unused = leaf({3});
  std::vector<std::string> order;
  on_grad_ready(a, [&] { order.push_back(fmt::format("a {}", grad_of(a).item())); });
  on_grad_ready(b, [&] { order.push_back(fmt::format("b {}", grad_of(b).item())); });
  on_grad_ready(unused, [&] { order.push_back("unused"); });
  const auto pass = [&] {
    const Tensor first = a * a;   // a is used twice here,
    backward(first * a * b * b);  // and again here; b, nearest to the root, is complete first
  };
  pass();
  EXPECT_EQ(order, (std::vector<std::string>{"b 4", "a 12"}));
  pass();
  EXPECT_EQ(order, (std::vector<std::string>{"b 4", "a 12", "b 8", "a 24"}));
  grad(a * b, std::array{a});
  EXPECT_EQ(order.size(), 4u);
}

TEST(Leaf, RootThatIsALeafGetsItsSeed) {
  const Tensor a = leaf({1});
  int ready = 0;
  on_grad_ready(a, [&] { ++ready; });
  backward(a);
  EXPECT_EQ(grad_of(a).item(), 1);
  EXPECT_EQ(ready, 1);
  EXPECT_EQ(grad(a, std::array{a})[0].item(), 1);
}

// x + 1, whose backward writes through Grads::target(), as convolution and linear do.
Tensor writes_target(const Tensor& x, int* overwrites) {
  return record("writes_target", x.detach() + Tensor::from(std::vector<float>{1}, {1}), {x},
                [x = Saved(x), overwrites](const Tensor& dy, Grads& dx) {
                  const auto [slice, write] = dx.target(0, x);
                  *overwrites += write == Write::overwrite ? 1 : 0;
                  for (std::int64_t i = 0; i < dy.numel(); ++i) {
                    float& out = slice.data<float>()[i];
                    out = (write == Write::overwrite ? 0 : out) + dy.data<float>()[i];
                  }
                });
}

TEST(Engine, AnIntermediateTensorPassesItsSumSoFar) {
  const Tensor a = leaf({1, 2});
  const Tensor seed = Tensor::from(std::vector<float>{1, 10}, {2});
  int overwrites = 0;
  Tensor middle = a * a;
  backward(writes_target(middle, &overwrites) + writes_target(middle, &overwrites), seed);
  EXPECT_EQ(values_of(grad_of(a)), (std::vector<double>{4, 80}));
  EXPECT_EQ(overwrites, 1) << "the second adds to what the first has written";
  // What others hold, too, is not written: here the addition hands one tensor to both.
  zero_grad(a);
  middle = a * a;
  backward(middle + writes_target(middle, &overwrites), seed);
  EXPECT_EQ(values_of(grad_of(a)), (std::vector<double>{4, 80}));
  EXPECT_EQ(overwrites, 2);
  EXPECT_EQ(values_of(seed), (std::vector<double>{1, 10}));
  // In anomaly mode each contribution is checked alone.
  zero_grad(a);
  middle = a * a;
  const AnomalyMode checks;
  backward(writes_target(middle, &overwrites) + writes_target(middle, &overwrites), seed);
  EXPECT_EQ(values_of(grad_of(a)), (std::vector<double>{4, 80}));
  EXPECT_EQ(overwrites, 4);
}

// The pass within a checkpoint collects for its caller, and does not add to what the pass around it has.
TEST(Engine, APassInsideAPassLeavesItsSumsAlone) {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor seed = Tensor::from(std::vector<float>{1, 10}, {2});
  int overwrites = 0;
  const Tensor middle = a * a;
  const Tensor inside =
      checkpoint([&](const Tensor& x) { return x * writes_target(middle, &overwrites); }, b);
  const Tensor outside = writes_target(middle, &overwrites);  // made last, its gradient comes first
  backward(inside + outside, seed);
  EXPECT_EQ(overwrites, 2);
  EXPECT_EQ(values_of(grad_of(a)), (std::vector<double>{2 * (1 + 3), 2 * 2 * 10 * (1 + 4)}));
  EXPECT_EQ(values_of(grad_of(b)), (std::vector<double>{2, 50}));
}

TEST(Leaf, BoundSliceTakesDirectWritesAndSums) {
  const Tensor arena = Tensor::from(std::vector<float>{7, 7, 7, 7, 7, 7}, {6});
  const Tensor a = leaf({1, 2});
  leaf_of(a).bind(arena.view_as_strided({2}, {1}, 2));
  const Tensor seed = Tensor::from(std::vector<float>{1, 10}, {2});
  int overwrites = 0;
  backward(writes_target(a, &overwrites), seed);
  EXPECT_EQ(values_of(arena), (std::vector<double>{7, 7, 1, 10, 7, 7}));
  EXPECT_EQ(overwrites, 1);
  // Tied: twice in one pass, next to an op that hands its gradient over.
  backward(writes_target(a, &overwrites) + writes_target(a, &overwrites) + (a + a), seed);
  EXPECT_EQ(values_of(arena), (std::vector<double>{7, 7, 5, 50, 7, 7}));
  EXPECT_EQ(overwrites, 1);
  zero_grad(a);
  EXPECT_FALSE(grad_of(a).defined());
  backward((a + a) + writes_target(a, &overwrites), seed);
  EXPECT_EQ(values_of(arena), (std::vector<double>{7, 7, 3, 30, 7, 7}));
  // grad() must not write the arena.
  EXPECT_EQ(values_of(grad(writes_target(a, &overwrites), std::array{a}, seed)[0]),
            (std::vector<double>{1, 10}));
  const Tensor b = leaf({1, 2});
  grad(writes_target(a, &overwrites) + b, std::array{b}, seed);
  EXPECT_EQ(values_of(arena), (std::vector<double>{7, 7, 3, 30, 7, 7}));
}

TEST(Leaf, ForgetsItsGradient) {
  const Tensor a = leaf({1});
  backward(a * a);
  forget_grad(a);
  EXPECT_FALSE(a.requires_grad());
  EXPECT_THROW(grad_of(a), ArgumentError);
  EXPECT_FALSE((a * a).requires_grad());
}

// Hostile use
// -------------------------------------------------------------------------------------------------

TEST(Engine, RejectsUnsupportedRequests) {
  const Tensor a = leaf({1, 2}), plain = Tensor::zeros({1});
  EXPECT_THROW(backward(Tensor()), ArgumentError);
  EXPECT_THROW(backward(plain), ArgumentError);
  EXPECT_THROW(backward(a * a), ArgumentError);  // two elements, no seed
  EXPECT_THROW(backward(a * a, Tensor::zeros({3})), ArgumentError);
  EXPECT_THROW(backward(a * a, Tensor::zeros({2}, {DType::f64, kCpu})), ArgumentError);
  EXPECT_THROW(require_grad(Tensor()), ArgumentError);
  EXPECT_THROW(require_grad(Tensor::zeros({1}, {DType::i64, kCpu})), ArgumentError);
  EXPECT_THROW(require_grad(a * a), ArgumentError);
  EXPECT_NO_THROW(require_grad(a));
  EXPECT_THROW(a.view_as_strided({1}, {1}, 0), ArgumentError);
  EXPECT_THROW(leaf_of(plain), ArgumentError);
  EXPECT_THROW(relu(Tensor()), ArgumentError);
  EXPECT_FALSE(grad_of(a).defined());
}

TEST(Engine, ContinuesAfterAnOpThrew) {
  const Tensor a = leaf({2});
  const Tensor bad = record("bad", a.detach() + a.detach(), {a},
                            [](const Tensor&, Grads&) { detail::fail<>("bad: on purpose"); });
  EXPECT_THROW(backward(bad * a), ArgumentError);
  EXPECT_TRUE(grad_enabled());
  zero_grad(a);
  backward(a * a);
  EXPECT_EQ(grad_of(a).item(), 4);
}

// Named parameters ------------------------------------------------------------------------------------------

std::vector<Parameter> named(std::initializer_list<Tensor> leaves) {
  std::vector<Parameter> parameters;
  for (const Tensor& leaf : leaves) parameters.push_back({"", leaf});
  return parameters;
}

/// x, through an op that counts how often its gradient is asked for.
Tensor counted(const Tensor& x, int& runs) {
  return record("counted", x.detach() + Tensor::zeros(x.shape()), {x}, [&runs](const Tensor& dy, Grads& dx) {
    ++runs;
    dx[0] = dy;
  });
}

TEST(NamedParameters, OnlyTheyCollectAndUnrelatedNodesDoNotRun) {
  const Tensor a = leaf({2}), b = leaf({3}), bound = leaf({5});
  const Tensor slice = Tensor::from(std::vector<float>{-7}, {1});
  leaf_of(bound).bind(slice);
  int of_a = 0, of_b = 0, ready = 0;
  on_grad_ready(b, [&] { ++ready; });
  const Tensor y = counted(a, of_a) * counted(b, of_b) * b * bound;
  backward(y, {}, {.parameters = named({a})});
  EXPECT_EQ(grad_of(a).item(), 3 * 3 * 5);
  EXPECT_FALSE(grad_of(b).defined());
  EXPECT_FALSE(grad_of(bound).defined());
  EXPECT_EQ(slice.item(), -7) << "nothing is written where nobody asked";
  EXPECT_EQ(of_a, 1);
  EXPECT_EQ(of_b, 0);
  EXPECT_EQ(ready, 0);
}

// Two losses of one network's output: the second pass finds all of it that the first did not run.
TEST(NamedParameters, NodesThatDidNotRunRemainForAnotherPass) {
  const Tensor a = leaf({2}), b = leaf({3});
  int of_a = 0;
  const Tensor fake = counted(a, of_a) * a;  // 4
  backward(fake * b, {}, {.parameters = named({b})});
  EXPECT_EQ(grad_of(b).item(), 4);
  EXPECT_EQ(of_a, 0);
  backward(fake * b, {}, {.parameters = named({a})});
  EXPECT_EQ(grad_of(a).item(), 2 * 2 * 3);
  EXPECT_EQ(of_a, 1);
  EXPECT_EQ(grad_of(b).item(), 4);
  EXPECT_THROW(backward(fake, {}, {.parameters = named({a})}), ArgumentError) << "freed by the pass before";
}

TEST(NamedParameters, AllOfThemGiveTheBitsOfAPassToAllLeaves) {
  const Tensor a = leaf({1.5f, 2}), b = leaf({0.3f, -1});
  const auto loss = [&] {
    const Tensor shared = a * b;
    const std::vector<Tensor> both{a, b};
    return sum(shared * shared + a + narrow(cat(both, 0), 0, 1, 2));
  };
  backward(loss());
  const auto da = values_of(grad_of(a)), db = values_of(grad_of(b));
  zero_grad(a), zero_grad(b);
  backward(loss(), {}, {.parameters = named({a, b})});
  EXPECT_EQ(values_of(grad_of(a)), da);
  EXPECT_EQ(values_of(grad_of(b)), db);
}

TEST(NamedParameters, GoThroughACheckpoint) {
  const Tensor a = leaf({2}), b = leaf({3});
  const Tensor x = a + Tensor::zeros({1});
  const Tensor y = checkpoint([&](const Tensor& in) { return in * b; }, x);
  backward(y, {}, {.parameters = named({b})});
  EXPECT_EQ(grad_of(b).item(), 2);
  EXPECT_FALSE(grad_of(a).defined());
}

TEST(NamedParameters, RootMustDependOnOne) {
  const Tensor a = leaf({2}), b = leaf({3});
  EXPECT_THROW(backward(a * a, {}, {.parameters = named({b})}), ArgumentError);
  EXPECT_THROW(backward(a, {}, {.parameters = named({b})}), ArgumentError);
  backward(a, {}, {.parameters = named({a, Tensor::zeros({1})})});  // one that is frozen is no leaf
  EXPECT_EQ(grad_of(a).item(), 1);
}

TEST(Anomaly, NamesOpDirectionAndTensor) {
  const Tensor a = leaf({INFINITY, 0}), zero = leaf({0, 0});
  EXPECT_NO_THROW(a * zero);
  const AnomalyMode anomaly;
  EXPECT_ERROR(Error, a * zero, "mul", "forward", "1", "2", "[2]");
  const Tensor x = leaf({1});
  const Tensor y = record("breaks", x.detach() + x.detach(), {x, Tensor()}, [](const Tensor&, Grads& dx) {
    dx[0] = Tensor::from(std::vector<float>{NAN}, {1});
  });
  EXPECT_ERROR(Error, backward(y + y), "breaks", "backward", "0", "1", "[1]");
}

// One value that is seen at four places is one value, whatever lies behind it in memory.
TEST(Anomaly, ChecksViewsAsViews) {
  const AnomalyMode anomaly;
  const Tensor x = leaf({1, 2, 3, 4});
  const Tensor seeds = Tensor::from(std::vector<float>{1, NAN, NAN, NAN}, {4});
  EXPECT_NO_THROW(backward(sum(x), seeds.view_as_strided({}, {}, 0)));
  EXPECT_EQ(grad_of(x).to_vector(), std::vector<double>(4, 1));
  const std::string message =
      test::message_of<Error>([&] { backward(sum(x), seeds.view_as_strided({}, {}, 1)); });
  EXPECT_TRUE(test::names(message, {"sum", "backward", "4", "[4]"}));
  for (const char* fewer : {"1", "2", "3"}) EXPECT_FALSE(test::holds(message, fewer)) << message;
}

// Observers
// ------------------------------------------------------------------------------------------------------

struct Names final : OpObserver {
  void recorded(const OpCall& op, const Tensor&, std::span<const Input> inputs) override {
    all += fmt::format("{}{}({}) ", op.name, op.has_gradient ? "" : "!", inputs.size());
  }
  void backward_ended(const char* op, const char*, const Tensor&, std::span<const Tensor> dx) override {
    all += fmt::format("d{}({}) ", op, dx.size());
  }
  std::string all;
};

TEST(OpObserver, EachIsNotifiedUntilItsScopeEndsInAnyOrder) {
  const Tensor a = leaf({2});
  Names first, second;
  std::optional<ObserveScope> outer(first);
  {
    const ObserveScope inner(second);
    eq(a, a);
    outer.reset();
    backward(a * a);
  }
  (void)(a + a);
  EXPECT_EQ(first.all, "compare!(2) ");
  EXPECT_EQ(second.all, "compare!(2) mul(2) dmul(2) ");
}

TEST(OpObserver, InputsWithoutGradientsAreReportedAndNotNumbered) {
  const Tensor a = leaf({2}), index = leaf({1});
  Names names;
  const ObserveScope scope(names);
  backward(record("pick", a.detach() + Tensor::zeros({1}), {Input::fixed(index), a},
                  [](const Tensor& dy, Grads& dx) { dx[0] = dy; }));
  EXPECT_EQ(grad_of(a).item(), 1);
  EXPECT_FALSE(grad_of(index).defined());
  EXPECT_EQ(names.all, "add(2) pick(2) dpick(1) ");
}

// Memory
// ------------------------------------------------------------------------------------------------------

TEST(Engine, AStepAllocatesNothingAfterWarmUp) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the pool is off under AddressSanitizer";
#endif
  const Tensor w = rand({64, 32}, {}), b = rand({32}, {}), x = rand({64, 32}, {1});
  const Tensor arena = Tensor::zeros({64 * 32});
  require_grad(w);
  require_grad(b);
  leaf_of(w).bind(arena.view_as_strided({64, 32}, {32, 1}, 0));
  const Tensor index = Tensor::from(std::vector<std::int64_t>{1, 1, 0, 63}, {4}), seed = ones({4 + 64, 32});
  const auto step = [&] {
    cpu_context().set_random_ops(0);
    zero_grad(w);
    zero_grad(b);
    const Tensor h = dropout(relu(x * w + b), 0.5f, true);
    const Tensor rows = index_select(h, 0, index);
    const Tensor halves[] = {narrow(h, 0, 0, 32), select(unsqueeze(h, 0), 0, 0)};
    const Tensor folded = transpose(transpose(halves[0], 0, 1), 0, 1);
    const Tensor parts[] = {rows, cat(std::array{folded, narrow(halves[1], 0, 32, 32)}, 0)};
    backward(cast(cast(cat(parts, 0), DType::bf16), DType::f32), seed);
  };
  for (int i = 0; i < 3; ++i) step();
  const std::int64_t growths = allocator_of(kCpu).stats().growths;  // builds a map: read before the counter
  const std::int64_t syncs = host_syncs(), news = test::operator_news();
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(test::operator_news(), news);
  EXPECT_EQ(allocator_of(kCpu).stats().growths, growths);
  EXPECT_EQ(host_syncs(), syncs);
}

}  // namespace athanor::engine_test
