#include "autograd/checkpoint.h"

#include "autograd/dropout.h"
#include "kernels/cpu/context.h"
#include "tests/support/ops.h"

namespace athanor::checkpoint_test {

using In = std::span<const Tensor>;

Tensor leaf(const Shape& shape, std::uint64_t stream) {
  const Tensor x = rand(shape, {0, stream}, -1, 1, {DType::f64, kCpu});
  require_grad(x);
  return x;
}

TEST(Checkpoint, Gradcheck) {
  const auto fn = [](In in) {
    return checkpoint([w = in[1]](const Tensor& x) { return x * x * w; }, in[0]) * in[1];
  };
  gradcheck(fn, std::array{leaf({3}, 0), leaf({3}, 1)});
}

TEST(Checkpoint, KeepsWeightsOfAnInputWithoutGradient) {
  const Tensor w = leaf({3}, 1), x = rand({3}, {0, 2}, 0, 1, {DType::f64, kCpu});
  backward(checkpoint([&](const Tensor& in) { return in * w; }, x), ones({3}, w.options()));
  EXPECT_TRUE(test::same_bits(grad_of(w), x));
}

TEST(Checkpoint, DrawsTheSameRandomNumbersAgain) {
  const Tensor x = leaf({1000}, 3);
  const auto run = [&](bool recompute) {
    cpu_context().set_random_ops(0);
    const auto fn = [](const Tensor& in) { return dropout(in * in, 0.5f, true); };
    const Tensor y = dropout(recompute ? checkpoint(fn, x) : fn(x), 0.5f, true);
    EXPECT_EQ(cpu_context().random_ops(), 2);
    zero_grad(x);
    backward(y, ones({1000}, x.options()));
    EXPECT_EQ(cpu_context().random_ops(), 2);
    return clone(grad_of(x));
  };
  EXPECT_TRUE(test::same_bits(run(true), run(false)));
}

TEST(Checkpoint, RecomputingIsTrueInTheSecondRun) {
  const Tensor x = leaf({1}, 4);
  std::vector<bool> runs;
  const Tensor y = checkpoint(
      [&](const Tensor& in) {
        runs.push_back(recomputing());
        return in * in;
      },
      x);
  backward(y);
  EXPECT_EQ(runs, (std::vector{false, true}));
  EXPECT_FALSE(recomputing());
}

TEST(Checkpoint, SavesOnlyItsInput) {
  const Tensor x = leaf({1 << 16}, 5);
  const auto deep = [](const Tensor& in) {
    Tensor y = in;
    for (int i = 0; i < 10; ++i) y = y * y;
    return y;
  };
  const std::int64_t before = allocator_of(kCpu).stats().current;
  const Tensor y = checkpoint(deep, x);
  EXPECT_LE(allocator_of(kCpu).stats().current - before, 2 * (1 << 16) * 8 + (1 << 20));
  const Tensor kept = deep(x);
  EXPECT_GE(allocator_of(kCpu).stats().current - before, 10 * (1 << 16) * 8);
  EXPECT_TRUE(test::same_bits(y, kept));
}

TEST(Checkpoint, NestsAndSharesWeightsWithTheRest) {
  const Tensor w = leaf({4}, 6), x = leaf({4}, 7);
  int ready = 0;
  on_grad_ready(w, [&] { ++ready; });
  const auto inner = [&](const Tensor& in) { return in * w; };
  const auto outer = [&](const Tensor& in) { return checkpoint(inner, in * in) * w; };
  const auto total = [&](bool recompute) {
    const Tensor mid = recompute ? checkpoint(outer, x * w) : inner(x * w * (x * w)) * w;
    return (recompute ? checkpoint(outer, mid) : inner(mid * mid) * w) * w;
  };
  const Tensor seed = ones({4}, x.options());
  backward(total(true), seed);
  EXPECT_EQ(ready, 1);
  const Tensor dw = clone(grad_of(w)), dx = clone(grad_of(x));
  zero_grad(w);
  zero_grad(x);
  backward(total(false), seed);
  EXPECT_TRUE(test::close(dw, grad_of(w), 1e-14));
  EXPECT_TRUE(test::close(dx, grad_of(x), 1e-14));
}

TEST(Checkpoint, ReachesTensorsFnCaptured) {
  const Tensor a = leaf({3}, 8), x = leaf({3}, 9);
  const Tensor captured = a * a;
  const auto segment = [captured](const Tensor& y) { return y * captured * captured; };
  const Tensor seed = ones({3}, a.options());
  const std::vector<Tensor> with =
      grad(checkpoint(segment, x) * captured, std::array{a, x, captured}, seed, {.retain_graph = true});
  const std::vector<Tensor> without = grad(segment(x) * captured, std::array{a, x, captured}, seed);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(test::close(with[i], without[i], 1e-14)) << i;
  EXPECT_FALSE(grad_of(a).defined());
}

// A buffer that every step fills anew, and a parameter after an update.
TEST(Checkpoint, TakesATensorThatWasWrittenToBefore) {
  const Tensor x = leaf({3}, 11), seed = ones({3}, x.options());
  x.bump_version();
  const auto square = [](const Tensor& in) { return in * in; };
  backward(checkpoint(square, x), seed);
  EXPECT_TRUE(test::close(grad_of(x), x.detach() + x.detach(), 1e-14));
  const Tensor y = checkpoint(square, x);
  x.bump_version();
  EXPECT_THROW(backward(y, seed), Error) << "it was changed in between";
}

TEST(Checkpoint, EdgesOfFn) {
  const Tensor x = leaf({2}, 10);
  const Tensor seed = ones({2}, x.options());
  backward(checkpoint([](const Tensor& in) { return in; }, x), seed);
  EXPECT_EQ(grad_of(x).to_vector(), (std::vector<double>{1, 1}));
  EXPECT_FALSE(checkpoint([](const Tensor& in) { return in.detach(); }, x).requires_grad());
  EXPECT_THROW(checkpoint([](const Tensor&) { return Tensor(); }, x), ArgumentError);
  EXPECT_THROW(checkpoint({}, x), ArgumentError);
  int calls = 0;
  const Tensor changing = checkpoint(
      [&](const Tensor& in) {
        return ++calls == 1 ? in : expand(in, {3, 2});
      },
      x);
  EXPECT_THROW(backward(changing, seed), ArgumentError);
  EXPECT_FALSE(recomputing());
  const NoGrad no_grad;
  EXPECT_FALSE(checkpoint([](const Tensor& in) { return in * in; }, x).requires_grad());
}

}  // namespace athanor::checkpoint_test
