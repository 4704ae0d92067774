#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

#include "autograd.h"
#include "gradcheck.h"
#include "random.h"

namespace {
std::atomic<std::size_t> bytes_in_use{0};
}

// Each piece of memory begins with its size. Not inlined, or g++ sees malloc where it expects new, and warns.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  auto* memory = static_cast<std::size_t*>(std::malloc(bytes + 2 * sizeof(std::size_t)));
  if (!memory) throw std::bad_alloc();
  *memory = bytes;
  bytes_in_use += bytes;
  return memory + 2;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  if (!memory) return;
  auto* begin = static_cast<std::size_t*>(memory) - 2;
  bytes_in_use -= *begin;
  std::free(begin);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  operator delete(memory);
}

namespace {

using namespace engine;
using Values = std::vector<float>;

Variable parameter(const Tensor& value) {
  return Variable(value, true);
}
Variable number(float value) {
  return parameter(Tensor({}, {value}));
}

std::string text(const Shape& shape) {
  std::string result = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) result += (i ? ", " : "") + std::to_string(shape[i]);
  return result + "]";
}

/// x itself, by a node that counts how often it runs.
Variable counted(const Variable& x, int& runs) {
  return record(x.value(), {x}, [&runs](const Tensor& dy) {
    ++runs;
    return std::vector<Tensor>{dy};
  });
}

TEST(Tape, RecordsWhatAGradientNeeds) {
  const Variable data(Tensor({2}, {1, 2})), p = parameter(Tensor({2}, {3, 4}));
  EXPECT_FALSE(data.requires_grad());
  EXPECT_TRUE(p.requires_grad());
  EXPECT_EQ(p.node(), nullptr) << "a leaf was computed by no operation";
  EXPECT_EQ(p.grad().numel(), 0) << "before backward() there is no gradient";
  EXPECT_EQ(add(data, data).node(), nullptr)
      << "no gradient is asked for: recording it would only hold memory";
  EXPECT_FALSE(add(data, data).requires_grad());
  const Variable y = add(data, p);
  ASSERT_NE(y.node(), nullptr) << "one input that requires a gradient is enough";
  EXPECT_TRUE(y.requires_grad()) << "what is computed from a parameter requires a gradient, too";
  EXPECT_EQ(y.node()->inputs.size(), 2u)
      << "all inputs stay on the node, data too: backward returns a gradient for each";
  const Variable again = p;
  EXPECT_TRUE(again.same_as(p)) << "a copy is the same variable";
  again.grad() = Tensor({2}, {5, 6});
  EXPECT_EQ(p.grad().values(), (Values{5, 6})) << "a copy is the same variable";
}

TEST(Tape, NoGradNestsAndBelongsToItsThread) {
  const Variable p = number(2);
  EXPECT_TRUE(is_recording());
  {
    const NoGrad outer;
    { const NoGrad inner; }
    EXPECT_FALSE(is_recording())
        << "the inner NoGrad ended, the outer has not: count them, or restore what was before";
    const Variable y = mul(p, p);
    EXPECT_EQ(y.node(), nullptr);
    EXPECT_FALSE(y.requires_grad()) << "what was not recorded is data";
    bool other = false;
    std::thread([&other] { other = is_recording(); }).join();
    EXPECT_TRUE(other) << "another thread has no NoGrad: the switch must be thread_local";
  }
  EXPECT_TRUE(is_recording());
}

TEST(Engine, AddsBothUsesOfAVariable) {
  const Variable a = number(3);
  backward(add(mul(a, a), a));
  EXPECT_NE(a.grad().item(), 3) << "a is used twice by a * a: one of its two gradients was lost";
  EXPECT_EQ(a.grad().item(), 7) << "d(a a + a)/da = 2 a + 1";
  const Variable b = number(3);
  backward(mul(b, b), 10);
  EXPECT_EQ(b.grad().item(), 60) << "the seed is the gradient of the loss: all others are multiples of it";
  const Variable leaf = number(3);
  backward(leaf, 5);
  EXPECT_EQ(leaf.grad().item(), 5)
      << "a loss that is a leaf itself gets the seed: it was computed by no node";
  const Variable c = parameter(Tensor({1, 1}, {3}));
  int runs = 0;
  EXPECT_NO_THROW(backward(counted(c, runs)))
      << "the gradient of a loss [1, 1] is the seed in the shape [1, 1], not in {}";
  EXPECT_EQ(c.grad().shape(), (Shape{1, 1})) << "a gradient has the shape of its variable";
}

TEST(Engine, RunsEachNodeOfADiamondOnce) {
  int runs = 0;
  const Variable a = number(1);
  const Variable b = counted(add(a, a), runs);
  backward(add(b, b));
  EXPECT_NE(a.grad().item(), 6) << "b passed its sum on at each of two visits: 2, then 4 in all";
  EXPECT_EQ(a.grad().item(), 4);
  EXPECT_EQ(runs, 1) << "a node ran " << runs
                     << " times: it must wait until all that read its result have contributed";

  runs = 0;
  Variable x = counted(a, runs);
  for (int i = 0; i < 15; ++i) x = add(x, x);
  a.clear_grad();
  backward(x);
  EXPECT_EQ(a.grad().item(), 32768);
  EXPECT_EQ(runs, 1) << "fifteen doublings have 32,768 paths to the same node: it ran " << runs
                     << " times, once for each path";
}

TEST(Engine, WaitsForTheLongWay) {
  int runs = 0;
  const Variable a = number(2);
  for (const bool short_first : {true, false}) {
    a.clear_grad();
    runs = 0;
    const Variable b = counted(scale(a, 1), runs);
    Variable end = b;
    for (int i = 0; i < 5; ++i) end = scale(end, 2);
    backward(short_first ? add(b, end) : add(end, b));
    EXPECT_EQ(runs, 1)
        << "a short way and a long way lead to one node: it ran before the long way had arrived";
    EXPECT_EQ(a.grad().item(), 33);
  }
}

TEST(Engine, WalksAChainOfAHundredThousand) {
  const Variable a = number(1);
  Variable x = a;
  for (int i = 0; i < 100000; ++i) x = scale(x, 1);
  backward(x);  // a recursive engine exhausts the stack here
  EXPECT_EQ(a.grad().item(), 1);
  // A tape that is dropped without a backward pass, on a thread of 256 KB of stack: destructors that call
  // each other exhaust it, as they would exhaust any stack if the chain were long enough.
  const auto drop_a_chain = [](void*) -> void* {
    const Variable b = number(1);
    Variable y = b;
    for (int i = 0; i < 100000; ++i) y = scale(y, 1);
    y = b;
    return nullptr;
  };
  pthread_attr_t small;
  pthread_t thread;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 256 << 10);
  ASSERT_EQ(pthread_create(&thread, &small, drop_a_chain, nullptr), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&small);
}

TEST(Engine, FreesATapeOnItsOwnThread) {
  const Variable a = number(1);
  const auto holds = [&](std::shared_ptr<void> what) {
    return record(a.value(), {a},
                  [what = std::move(what)](const Tensor& dy) { return std::vector<Tensor>{dy}; });
  };
  bool freed = false;
  const auto drop_on_another_thread = [&](void*) {
    std::thread([&] {
      holds(std::shared_ptr<void>(nullptr, [&](void*) { freed = true; }));
      EXPECT_TRUE(freed)
          << "while one thread deleted a tape, the node of another thread was put on its list: "
             "`waiting` must be thread_local, or two ranks that train have a race";
    }).join();
  };
  holds(std::shared_ptr<void>(nullptr, drop_on_another_thread));
  EXPECT_TRUE(freed) << "a tape was dropped, but its node was not deleted";
}

TEST(Engine, GradientsHaveMemoryOfTheirOwn) {
  const Variable a = parameter(Tensor({2}, {1, 2})), b = parameter(Tensor({2}, {3, 4}));
  const auto sum_of = [](const Variable& x, const Variable& y) {
    return record(zip(x.value(), y.value(), [](float s, float t) { return s + t; }), {x, y},
                  [](const Tensor& dy) {
                    return std::vector<Tensor>{dy, dy};
                  });  // one tensor for both
  };
  backward(sum_all(sum_of(a, b)));
  EXPECT_FALSE(a.grad().shares_memory_with(b.grad()))
      << "two gradients share memory: what clips or adds to one changes the other. A leaf needs a clone";
  EXPECT_TRUE(a.grad().is_contiguous())
      << "the gradient is an expanded view: one number in memory for all elements";
  backward(sum_all(sum_of(a, a)));
  EXPECT_EQ(a.grad().values(), (Values{3, 3}))
      << "backward() adds to the gradient that is there: 1, and 2 from this pass";
  EXPECT_EQ(b.grad().values(), (Values{1, 1})) << "the second pass did not touch b";
  a.clear_grad();
  backward(sum_all(a));
  EXPECT_EQ(a.grad().values(), (Values{1, 1}));
  a.clear_grad();
  b.clear_grad();
  backward(add(sum_all(sum_of(a, b)), sum_all(sum_of(a, b))));
  EXPECT_EQ(a.grad().values(), (Values{2, 2}))
      << "two operations return one tensor for a and for b: what comes later must be added in a new tensor, "
         "for in the old one it would be added to the gradient of the other as well";
  EXPECT_EQ(b.grad().values(), (Values{2, 2})) << "the same for b";
}

TEST(Engine, CallsTheHookWhenAGradientIsComplete) {
  const Variable first = number(2), second = number(3), data(Tensor({}, {5}));
  int runs = 0;
  const Variable hidden = counted(mul(first, data), runs);
  const Variable loss = mul(add(hidden, first), second);
  std::vector<std::string> calls;
  backward(loss, 1, [&](const Variable& leaf) {
    if (calls.empty()) {
      EXPECT_EQ(runs, 0)
          << "the last layer's gradient was complete, but the nodes of the layers below ran before "
             "its hook: call it at once, not when the pass is over";
    }
    calls.push_back((leaf.same_as(first)    ? "first "
                     : leaf.same_as(second) ? "second "
                                            : "other ") +
                    std::to_string(static_cast<int>(leaf.grad().item())));
  });
  EXPECT_EQ(calls, (std::vector<std::string>{"second 12", "first 18"}))
      << "one call for each parameter, after its last contribution: the last layer first";
  EXPECT_EQ(data.grad().numel(), 0) << "data require no gradient, and get none";
  calls.clear();
  backward(mul(first, second), 1, [&](const Variable& leaf) {
    calls.push_back(std::to_string(static_cast<int>(leaf.grad().item())));
  });
  std::sort(calls.begin(), calls.end());
  EXPECT_EQ(calls, (std::vector<std::string>{"14", "21"}))
      << "a second pass adds 2 to 12 and 3 to 18: one call for each, when the sum is in grad()";
}

TEST(Engine, FreesTheTapeAndRefusesWhatHasNoGradient) {
  const Variable a = parameter(Tensor({3}, {1, 2, 3}));
  const Variable y = mul(a, a), loss = sum_all(y);
  backward(loss);
  EXPECT_EQ(y.node(), nullptr) << "a node that has run is released: it holds the values of a whole step";
  EXPECT_EQ(loss.node(), nullptr);
  Variable above;
  bool freed = false;
  const Variable below = record(a.value(), {a}, [&](const Tensor& dy) {
    freed = above.node() == nullptr;
    return std::vector<Tensor>{dy};
  });
  above = scale(below, 2);
  backward(sum_all(above));
  EXPECT_TRUE(freed)
      << "a node ran while that above it, which had run, was still held: release each at once, or "
         "the whole tape lives until the end";
  constexpr std::size_t kMegabyte = 1 << 20;
  const Variable large = parameter(Tensor({1 << 18}));
  std::size_t before = bytes_in_use, then = 0;
  Variable x = record(large.value().clone(), {large}, [&](const Tensor& dy) {
    then = bytes_in_use;
    return std::vector<Tensor>{dy};
  });
  for (int i = 0; i < 20; ++i) x = scale(x, 1);
  const Variable sum_of_large = sum_all(x);
  x = Variable();
  backward(sum_of_large);
  EXPECT_LT(then, before + 10 * kMegabyte)
      << "20 results of 1 MB each led to the loss, and when the first operation of all ran backwards, "
      << (then - before) / kMegabyte
      << " MB were still held: a result whose node has run is needed no more, so no table may hold its "
         "Variable";
  EXPECT_THROW(backward(mul(a, a)), std::invalid_argument) << "a loss has one element";
  EXPECT_THROW(backward(Variable(Tensor({}, {1}))), std::invalid_argument)
      << "nothing that led to this loss requires a gradient";
}

TEST(Engine, RefusesATapeThatWasUsed) {
  const Variable a = number(3);
  const Variable y = mul(a, a), loss = scale(y, 2), other = scale(y, 5);
  backward(loss);
  EXPECT_EQ(a.grad().item(), 12);
  EXPECT_THROW(backward(loss), std::logic_error) << "the tape of this loss has been used: its released "
                                                    "result was taken for a leaf, and the parameters got "
                                                    "nothing";
  EXPECT_THROW(backward(other), std::logic_error) << "two losses share a result that the first backward() "
                                                     "released: it was taken for a leaf, and a lost a "
                                                     "gradient";
  EXPECT_EQ(a.grad().item(), 12) << "what was refused adds nothing";
  backward(mul(a, Variable(y.value())));
  EXPECT_EQ(a.grad().item(), 21) << "the value of a used result is data like any other";
}

TEST(Engine, RefusesGradientsThatDoNotFit) {
  const Variable a = parameter(Tensor({2}, {1, 2})), b = parameter(Tensor({2}, {3, 4}));
  const auto returning = [&](const std::vector<Tensor>& gradients) {
    return sum_all(record(a.value(), {a, b}, [gradients](const Tensor&) { return gradients; }));
  };
  EXPECT_THROW(backward(returning({Tensor({2}), Tensor({1, 2})})), std::logic_error)
      << "an operation returned a gradient [1, 2] for an input [2]: refuse it here, not three operations "
         "later";
  EXPECT_THROW(backward(returning({Tensor({2})})), std::logic_error)
      << "an operation of two inputs returned one gradient: the second is read beyond the end";
  EXPECT_THROW(backward(returning({Tensor({2}), Tensor({2}), Tensor({2})})), std::logic_error)
      << "an operation of two inputs returned three gradients";
}

TEST(Broadcast, SumsTheGradientBack) {
  struct Operation {
    const char* name;
    Variable (*f)(const Variable&, const Variable&);
  };
  const Variable matrix = parameter(random_tensor({4, 3}, 1));
  for (const auto& [name, f] :
       {Operation{"add", add}, Operation{"sub", sub}, Operation{"mul", mul}, Operation{"div", div}})
    for (const Shape& shape : {Shape{3}, Shape{1, 3}, Shape{4, 1}, Shape{}}) {
      const Variable operand = parameter(map(Tensor(shape), [](float) { return 2.0f; }));
      const Variable y = f(matrix, operand);
      const Tensor dy = map(y.value(), [](float) { return 1.0f; });
      const Shape got = y.node()->backward(dy).at(1).shape();
      ASSERT_EQ(got, shape)
          << name << ": the gradient of the operand that was broadcast must be summed back to its shape "
          << text(shape) << ", but has shape " << text(got);
    }
  const Variable row = parameter(Tensor({3}, {1, 2, 3})), column = parameter(Tensor({2, 1}, {10, 20}));
  backward(sum_all(mul(row, column)));
  EXPECT_EQ(row.grad().values(), (Values{30, 30, 30}))
      << "each number of the row was used twice: times 10, and times 20";
  EXPECT_EQ(column.grad().values(), (Values{6, 6}));
}

Tensor positive(const Shape& shape, std::uint64_t seed) {
  return map(random_tensor(shape, seed), [](float x) { return 0.75f + std::fabs(x); });
}

TEST(Relu, KeepsNaN) {
  const Variable y = relu(Variable(Tensor({3}, {std::numeric_limits<float>::quiet_NaN(), -1, 2})));
  EXPECT_TRUE(std::isnan(y.value().at({0}))) << "relu hides a NaN: v > 0 is false for it, so ask v < 0, or "
                                                "you will not see that training has broken";
  EXPECT_EQ(y.value().at({1}), 0);
  EXPECT_EQ(y.value().at({2}), 2);
}

TEST(Gradcheck, Elementwise) {
  const Tensor a = random_tensor({2, 3}, 1), b = positive({3}, 2);
  gradcheck_op("add", {a, b}, [](const auto& x) { return add(x[0], x[1]); });
  gradcheck_op("sub", {a, b}, [](const auto& x) { return sub(x[0], x[1]); });
  gradcheck_op("mul", {a, b}, [](const auto& x) { return mul(x[0], x[1]); });
  gradcheck_op("div", {a, b}, [](const auto& x) { return div(x[0], x[1]); });
  gradcheck_op("div, its two operands one variable", {b},
               [](const auto& x) { return div(x[0], mul(x[0], x[0])); });
  gradcheck_op("scale", {a}, [](const auto& x) { return scale(x[0], -3); });
  gradcheck_op("exp", {a}, [](const auto& x) { return exp(x[0]); });
  gradcheck_op("log", {b}, [](const auto& x) { return log(x[0]); });
  gradcheck_op("sqrt", {b}, [](const auto& x) { return sqrt(x[0]); });
  gradcheck_op("relu", {Tensor({4}, {-1, 0.5f, 2, -0.25f})}, [](const auto& x) { return relu(x[0]); });
  const auto value = [](const Variable& y) { return y.value().item(); };
  const Variable six = number(6), four = number(4);
  EXPECT_EQ(value(add(six, four)), 10) << "values: differences cannot show that an operation is another one";
  EXPECT_EQ(value(sub(six, four)), 2);
  EXPECT_EQ(value(mul(six, four)), 24);
  EXPECT_EQ(value(div(six, four)), 1.5f);
  EXPECT_EQ(value(scale(six, -0.5f)), -3);
  EXPECT_FLOAT_EQ(value(exp(four)), std::exp(4.0f));
  EXPECT_FLOAT_EQ(value(log(four)), std::log(4.0f)) << "log is the natural logarithm";
  EXPECT_EQ(value(sqrt(four)), 2);
  const Variable zero = number(0);
  backward(relu(zero));
  EXPECT_EQ(zero.grad().item(), 0) << "relu: the gradient at 0 is 0, by the contract of the header";
}

TEST(Gradcheck, ShapesSumsAndProducts) {
  const Tensor x = random_tensor({2, 3, 4}, 3);
  gradcheck_op("sum over axis 1", {x}, [](const auto& v) { return sum(v[0], 1); });
  gradcheck_op("mean over axis 1", {x}, [](const auto& v) { return mean(v[0], 1); });
  gradcheck_op("sum_all", {x}, [](const auto& v) { return sum_all(v[0]); });
  EXPECT_EQ(sum_all(Variable(x)).shape(), Shape{}) << "sum_all: the result has shape {}";
  const Variable six(Tensor({2, 3}, {0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(sum(six, 1).value().values(), (Values{3, 12}))
      << "values: a gradcheck looks at differences alone";
  EXPECT_EQ(mean(six, 0).value().values(), (Values{1.5f, 2.5f, 3.5f}))
      << "mean over axis 0: the sum, divided by the size of that axis";
  EXPECT_EQ(narrow(six, 1, 1, 2).value().values(), (Values{1, 2, 4, 5})) << "two columns from column 1";
  gradcheck_op("reshape", {x}, [](const auto& v) { return reshape(v[0], {4, 6}); });
  gradcheck_op("transpose", {x}, [](const auto& v) { return transpose(v[0], 0, 2); });
  gradcheck_op("reshape of a transposed tensor", {x}, [](const auto& v) {
    return reshape(transpose(v[0], 0, 1), {6, 4});
  });
  gradcheck_op("narrow: what was left out has gradient 0", {x},
               [](const auto& v) { return narrow(v[0], 1, 1, 2); });
  gradcheck_op("matmul", {random_tensor({2, 3}, 4), random_tensor({3, 4}, 5)},
               [](const auto& v) { return matmul(v[0], v[1]); });
  gradcheck_op("matmul of a batch", {x, random_tensor({2, 4, 2}, 6)},
               [](const auto& v) { return matmul(v[0], v[1]); });
  gradcheck_op("matmul with itself", {random_tensor({3, 3}, 7)},
               [](const auto& v) { return matmul(v[0], transpose(v[0], 0, 1)); });
}

}  // namespace
