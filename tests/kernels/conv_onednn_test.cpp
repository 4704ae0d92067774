// What oneDNN is asked for: the code of each layer; a warm step makes no primitive and allocates nothing.
#include <algorithm>
#include <cstdlib>

#include "kernels/conv.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/cpu/onednn.h"
#include "kernels/implementations.h"
#include "tests/support/conv_values.h"
#include "tests/support/count_new.h"
#include "tests/support/ops.h"

namespace athanor::conv_onednn_test {

using test::conv_cases;
using test::ConvCase;
using test::name;
using test::same_bits;
using test::values;

bool multiplies_bf16() {
#if defined(__x86_64__) && defined(__GNUC__)
  return __builtin_cpu_supports("avx512bf16") && std::getenv("ATHANOR_MAX_CPU_ISA") == nullptr;
#else
  return false;
#endif
}

using Op = cpu::PrimitiveKey::Op;

/// Of a convolution of plain weights.
cpu::PrimitiveKey onednn_key(Op pass, DType dtype) {
  cpu::PrimitiveKey key;
  key.op = pass;
  key.in = key.out = dtype;
  for (const cpu::ListEntry& entry : cpu::conv_list(pass))
    if (entry.implementation->name == "vendor") key.by = entry.implementation;  // the last is for these
  return key;
}

/// Every convolution of a model, as (image size, C, K, R, stride, padding).
struct Layer {
  std::int64_t size, c, k, r, stride, padding;
};

std::vector<Layer> resnet(std::int64_t image, std::vector<std::int64_t> widths, bool bottleneck,
                          bool imagenet) {
  std::vector<Layer> layers;
  std::int64_t size = imagenet ? image / 4 : image, c = imagenet || widths.size() == 4 ? 64 : 16;
  layers.push_back(imagenet ? Layer{image, 3, 64, 7, 2, 3} : Layer{image, 3, c, 3, 1, 1});
  for (std::size_t stage = 0; stage < widths.size(); ++stage) {
    const std::int64_t width = widths[stage], out = bottleneck ? 4 * width : width;
    for (int block = 0; block < 2; ++block) {
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      if (bottleneck) {
        layers.push_back({size, c, width, 1, 1, 0});
        layers.push_back({size, width, width, 3, stride, 1});
        layers.push_back({size / stride, width, out, 1, 1, 0});
      } else {
        layers.push_back({size, c, width, 3, stride, 1});
        layers.push_back({size / stride, width, width, 3, 1, 1});
      }
      if (c != out) layers.push_back({size, c, out, 1, stride, 0});
      size /= stride;
      c = out;
    }
  }
  return layers;
}

std::vector<Layer> layers_of_all_models() {
  std::vector<Layer> all = {
      {28, 1, 6, 5, 1, 2},     {14, 6, 16, 5, 1, 0},                              // LeNet-5
      {224, 3, 64, 11, 4, 2},  {27, 64, 192, 5, 1, 2},  {13, 192, 384, 3, 1, 1},  // AlexNet
      {13, 384, 256, 3, 1, 1}, {13, 256, 256, 3, 1, 1}, {224, 3, 64, 3, 1, 1},   {112, 64, 128, 3, 1, 1},
      {56, 128, 256, 3, 1, 1},  // VGG-11
      {56, 256, 256, 3, 1, 1}, {28, 256, 512, 3, 1, 1}, {28, 512, 512, 3, 1, 1}, {14, 512, 512, 3, 1, 1},
      {32, 3, 24, 2, 1, 0},    {31, 24, 64, 3, 1, 1},   {15, 64, 64, 3, 1, 1},  // CifarNet
      {15, 64, 256, 3, 1, 1},  {7, 256, 256, 3, 1, 1},  {3, 256, 256, 3, 1, 1}};
  for (const auto& layers :
       {resnet(32, {16, 32, 64}, false, false), resnet(32, {64, 128, 256, 512}, false, false),
        resnet(32, {64, 128, 256, 512}, true, false), resnet(224, {64, 128, 256, 512}, false, true),
        resnet(224, {64, 128, 256, 512}, true, true)})
    all.insert(all.end(), layers.begin(), layers.end());
  return all;
}

// Only asks oneDNN what it would run: nothing is computed.
TEST(Conv2d, OneDnnHasFastCodeForEveryLayerOfTheModels) {
  if (!cpu::has_onednn()) GTEST_SKIP() << "this build has no oneDNN";
  cpu::PrimitiveCache cache;
  for (const Layer& l : layers_of_all_models()) {
    const std::int64_t out = (l.size + 2 * l.padding - l.r) / l.stride + 1;
    for (const Op op : {Op::conv_forward, Op::conv_backward_data, Op::conv_backward_weights}) {
      cpu::PrimitiveKey key = onednn_key(op, DType::f32);
      key.sizes = {8,   l.size,   l.size,   l.c,       l.k,       l.r, l.r, out,
                   out, l.stride, l.stride, l.padding, l.padding, 1,   1,   1};
      EXPECT_NE(cache.find(key), nullptr) << l.size << " " << l.c << " " << l.k << " " << l.r;
    }
  }
  for (const cpu::PrimitiveInfo& info : cache.contents())
    EXPECT_EQ(info.implementation.find("ref"), std::string::npos) << info.implementation;
}

TEST(Conv2d, ReferenceCodeOfOneDnnIsNeverChosen) {
  // Layers oneDNN is known to be bad at: odd groups with dilation, f16 on CPUs without it.
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    cpu::PrimitiveCache cache;
    cpu::PrimitiveKey key = onednn_key(Op::conv_backward_weights, dtype);
    key.sizes = {1, 9, 9, 9, 9, 3, 3, 5, 5, 1, 1, 0, 0, 2, 2, 3};
    const bool found = cache.find(key) != nullptr;
    for (const cpu::PrimitiveInfo& info : cache.contents()) {
      const bool good = !info.implementation.empty() && info.implementation.find("ref") == std::string::npos;
      EXPECT_EQ(found, good) << info.implementation;
    }
  }
}

// Our own loops widen bf16 to f32; a CPU that multiplies it does so several times as fast.
TEST(Conv2d, Bf16GoesToOneDnnWhereTheCpuMultipliesIt) {
  if (!cpu::has_onednn() || !multiplies_bf16()) GTEST_SKIP() << "no oneDNN, or a CPU without AVX512_BF16";
  const Tensor x = require_grad(values({2, 11, 7, 5}, DType::bf16, 1));
  const Tensor w = require_grad(values({16, 3, 3, 5}, DType::bf16, 2));
  const Tensor y = conv2d(x, w, {}, {});
  backward(y, values(y.shape(), DType::bf16, 3));
  for (const Op pass : {Op::conv_forward, Op::conv_backward_data, Op::conv_backward_weights}) {
    const auto contents = cpu_context().primitives().contents();
    EXPECT_TRUE(std::any_of(contents.begin(), contents.end(), [&](const cpu::PrimitiveInfo& info) {
      return info.key.op == pass && info.key.in == DType::bf16 && info.key.sizes[1] == 11 &&
             info.key.by->name == "vendor" && !info.implementation.empty();
    })) << static_cast<int>(pass);
  }
}

TEST(PrimitiveCache, IsBounded) {
  static int made = 0;
  made = 0;
  const cpu::Implementation counted{
      .name = "counted", .fuses = {}, .fits = nullptr, .make = [](const cpu::PrimitiveKey&) {
        ++made;
        return cpu::MadePrimitive{};
      }};
  cpu::PrimitiveCache cache;
  const auto find = [&](int size) {
    cpu::PrimitiveKey key;
    key.by = &counted;
    key.sizes[0] = size;
    cache.find(key);
  };
  const int capacity = static_cast<int>(cpu::PrimitiveCache::kCapacity);
  for (int size = 1; size <= capacity; ++size) find(size);
  find(1);  // used again: 2 is now the oldest
  find(capacity + 1);
  EXPECT_EQ(cache.contents().size(), cpu::PrimitiveCache::kCapacity);
  EXPECT_EQ(made, capacity + 1);
  find(1);
  EXPECT_EQ(made, capacity + 1);
  find(2);
  EXPECT_EQ(made, capacity + 2);
}

TEST(Conv2d, AWarmStepHasTheSameBitsAndMakesNothing) {
  for (const ConvCase& c : conv_cases()) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(name(c, dtype, c.params.impl));
      const Tensor x = require_grad(values(c.x, dtype, 1)), w = require_grad(values(c.w, dtype, 2));
      const Tensor bias = require_grad(values({c.w[0]}, dtype, 3));
      const Tensor dy = values(conv2d_shape(c.x, c.w, c.params), dtype, 4);
      for (const Tensor& leaf : {x, w, bias}) leaf_of(leaf).bind(empty_like(leaf));
      const auto step = [&, params = test::with(c.params, Activation::relu)] {
        for (const Tensor& leaf : {x, w, bias}) zero_grad(leaf);
        const Tensor y = conv2d(x, w, bias, params);
        backward(y, dy);
        return y.detach();
      };
      const Tensor y = step(), dx = clone(grad_of(x)), dw = clone(grad_of(w));
      step();
      const std::int64_t primitives = primitives_created();
      [[maybe_unused]] const std::int64_t news = test::operator_news();
      const Tensor again = step();
#if !defined(__SANITIZE_ADDRESS__)  // under which the pool is off
      EXPECT_EQ(test::operator_news(), news);
#endif
      EXPECT_EQ(primitives_created(), primitives);
      EXPECT_TRUE(same_bits(again, y));
      EXPECT_TRUE(same_bits(grad_of(x), dx));
      EXPECT_TRUE(same_bits(grad_of(w), dw));
    }
  }
}

}  // namespace athanor::conv_onednn_test
