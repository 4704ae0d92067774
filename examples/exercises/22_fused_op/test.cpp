#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/gradcheck.h"
#include "autograd/node.h"
#include "autograd/reduce.h"
#include "autograd/shape.h"
#include "op.h"
#include "tensor/base/error.h"
#include "tensor/tensor.h"

namespace {

using namespace athanor;

Tensor filled(const Shape& shape, DType dtype, const std::function<double(std::int64_t)>& value) {
  const Tensor x = Tensor::empty(shape, {dtype, kCpu});
  dispatch_floating(dtype, "filled", [&]<class T>() {
    for (std::int64_t i = 0; i < shape.numel(); ++i) x.data<T>()[i] = T(static_cast<Accumulate<T>>(value(i)));
  });
  return x;
}
Tensor numbers(const Shape& shape, double from, DType dtype = DType::f64) {
  return filled(shape, dtype,
                [&](std::int64_t i) { return from + static_cast<double>(i * 7 % 11) / 8 - 0.6; });
}

Tensor by_ops(const Tensor& x, const Tensor& scale, const Tensor& bias) {
  return relu(x * scale + bias);
}

TEST(Op, EqualsTheThreeOps) {
  for (const DType dtype : {DType::f64, DType::f32}) {
    const Tensor x = numbers({5, 3}, 0.01, dtype), scale = numbers({3}, 0.3, dtype),
                 bias = numbers({3}, -0.2, dtype);
    EXPECT_EQ(scale_bias_relu(x, scale, bias).to_vector(), by_ops(x, scale, bias).to_vector())
        << "the values are others";
    EXPECT_EQ(scale_bias_relu(x, scale, bias).dtype(), dtype);
  }
  EXPECT_EQ(scale_bias_relu(numbers({0, 3}, 0), numbers({3}, 0), numbers({3}, 0)).shape(), (Shape{0, 3}))
      << "no rows";
}

TEST(Op, IsOneNode) {
  const Tensor x = numbers({5, 3}, 0.01), scale = numbers({3}, 0.3), bias = numbers({3}, -0.2);
  for (const Tensor& t : {x, scale, bias}) require_grad(t);
  const TapeCounters before = tape_counters();
  const Tensor y = scale_bias_relu(x, scale, bias);
  const TapeCounters after = tape_counters();
  EXPECT_EQ(after.nodes - before.nodes, 1)
      << "the tape holds a node for each op that was called: call loops, not ops, and detach";
  EXPECT_LE(after.saved_tensors - before.saved_tensors, 3) << "x, scale and the sign of y are enough";
  const Tensor plain = scale_bias_relu(x.detach(), scale.detach(), bias.detach());
  EXPECT_EQ(tape_counters().nodes, after.nodes)
      << "nothing needs a gradient, so that nothing may be recorded";
  EXPECT_FALSE(plain.requires_grad());
}

// "" or what gradcheck says.
template <class F> std::string complaint(F op, const std::vector<Tensor>& inputs) {
  for (const Tensor& input : inputs) require_grad(input);
  try {
    gradcheck([&](std::span<const Tensor> in) { return op(in); }, inputs);
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Op, PassesGradcheck) {
  const auto op = [](std::span<const Tensor> in) { return scale_bias_relu(in[0], in[1], in[2]); };
  // x is negative where y is positive, and the other way around, by the signs of scale.
  EXPECT_EQ(complaint(op, {numbers({5, 3}, 0.01), numbers({3}, 0.3), numbers({3}, 0.2)}), "")
      << "input 0 is x, 1 is scale, 2 is bias; is the mask that of y, and are rows summed?";
  EXPECT_EQ(complaint(op, {numbers({5, 3}, 0.01), numbers({3}, -1.7), numbers({3}, 0.4)}), "")
      << "with a negative scale";
  const Tensor x = numbers({4, 2}, 0.01), scale = numbers({2}, 0.3), bias = numbers({2}, 0.2);
  EXPECT_EQ(complaint([&](std::span<const Tensor> in) { return scale_bias_relu(in[0], scale, bias); }, {x}),
            "")
      << "only x needs a gradient";
  EXPECT_EQ(
      complaint(
          [&](std::span<const Tensor> in) { return scale_bias_relu(x.detach(), scale.detach(), in[0]); },
          {bias}),
      "")
      << "only bias needs a gradient";
}

TEST(Op, TakesStridedInput) {
  const auto op = [](std::span<const Tensor> in) {
    return transpose(scale_bias_relu(transpose(in[0], 0, 1), in[1], in[2]), 0, 1);
  };
  const auto same = [](std::span<const Tensor> in) {
    return transpose(by_ops(transpose(in[0], 0, 1), in[1], in[2]), 0, 1);
  };
  const std::vector<Tensor> inputs{numbers({3, 5}, 0.01), numbers({3}, 0.3), numbers({3}, 0.2)};
  EXPECT_EQ(op(inputs).to_vector(), same(inputs).to_vector())
      << "a transposed x was read as if it were dense";
  EXPECT_EQ(complaint(op, inputs), "") << "a transposed x or dy was read as if it were dense";
}

TEST(Op, SumsHalvesInFloat) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const auto all = [&](const Shape& shape, double value) {
      return filled(shape, dtype, [&](std::int64_t) { return value; });
    };
    const Tensor x = all({4096, 1}, 1), scale = all({1}, 1), bias = all({1}, 0);
    for (const Tensor& t : {scale, bias}) require_grad(t);
    backward(sum(scale_bias_relu(x, scale, bias)));
    EXPECT_EQ(grad_of(scale).item(), 4096)
        << name_of(dtype) << ": a sum of ones in 16 bits stops where adding 1 changes nothing";
    EXPECT_EQ(grad_of(bias).item(), 4096)
        << name_of(dtype) << ": a sum of ones in 16 bits stops where adding 1 changes nothing";
  }
}

TEST(Op, NoticesAChangedInput) {
  const Tensor x = numbers({5, 3}, 0.01), scale = numbers({3}, 0.3), bias = numbers({3}, 0.2);
  require_grad(scale);
  const Tensor y = scale_bias_relu(x, scale, bias);
  x.bump_version();  // as an in-place update does
  EXPECT_THROW(backward(sum(y)), ArgumentError)
      << "x was changed after the op had used it: the gradient of scale is wrong, without an error. Keep "
         "it with Saved(x)";
}

}  // namespace
