// Every implementation of a convolution, with all that it fuses, against the definition in f64: a new one is
// tested by being in the list.
#include "kernels/cpu/conv_list.h"

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "kernels/cpu/context.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/onednn.h"
#include "kernels/packed_weights.h"
#include "tests/support/activations.h"
#include "tests/support/conv_values.h"

namespace athanor::conv_list_test {

using test::ConvCase;
using test::ConvOperands;
using Pass = cpu::PrimitiveKey::Op;

constexpr Pass kPasses[] = {Pass::conv_forward, Pass::conv_backward_data, Pass::conv_backward_weights};

std::vector<ConvCase> cases() {
  std::vector<ConvCase> all = test::conv_cases();
  const std::vector<ConvCase> own = {
      // For Winograd's algorithm.
      {{2, 9, 7, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},
      {{3, 7, 9, 32}, {48, 3, 3, 32}, {.padding = {1, 1}}},    // a panel and a half
      {{2, 5, 6, 16}, {16, 3, 3, 16}, {}},                     // no padding
      {{1, 4, 4, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}},    // one tile
      {{3, 1, 1, 16}, {32, 3, 3, 16}, {.padding = {1, 1}}},    // of which one pixel is seen
      {{1, 3, 18, 32}, {16, 3, 3, 32}, {.padding = {0, 2}}},   // one row, and padding that differs
      {{6, 16, 18, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},  // more tiles than channels
      // For few pixels and large filters.
      {{1, 4, 4, 256}, {512, 3, 3, 256}, {.padding = {1, 1}}},  // the end of a ResNet-18
      {{1, 8, 8, 128}, {256, 3, 3, 128}, {.stride = {2, 2}, .padding = {1, 1}}},
      {{1, 8, 8, 256}, {512, 1, 1, 256}, {.stride = {2, 2}}},
      {{1, 7, 7, 512}, {272, 1, 1, 512}, {}},                   // 49 pixels, half a panel
      {{1, 1, 1, 512}, {256, 1, 1, 512}, {}},                   // one pixel
      {{3, 2, 3, 130}, {128, 3, 3, 130}, {.padding = {1, 1}}},  // depth no multiple of a chunk
      {{2, 9, 8, 40}, {144, 5, 5, 40}, {.padding = {2, 0}, .dilation = {2, 1}}},
      {{1, 3, 3, 128}, {128, 3, 3, 128}, {.stride = {2, 1}, .padding = {5, 4}}},  // pixels of padding alone
      // Depthwise.
      {{2, 9, 7, 24}, {24, 7, 7, 1}, {.padding = {3, 3}, .groups = 24}},  // a block and a half
      {{3, 8, 11, 5}, {5, 5, 5, 1}, {.stride = {2, 1}, .padding = {2, 1}, .groups = 5}},  // part of a block
      {{2, 12, 9, 32}, {32, 3, 3, 1}, {.stride = {1, 2}, .padding = {1, 1}, .groups = 32}},
      {{1, 20, 19, 16}, {16, 4, 17, 1}, {.padding = {0, 8}, .dilation = {3, 1}, .groups = 16}},  // long rows
      {{17, 3, 3, 20}, {20, 1, 5, 1}, {.padding = {0, 2}, .groups = 20}},   // images in parts
      {{5, 33, 31, 40}, {40, 7, 7, 1}, {.padding = {3, 3}, .groups = 40}},  // several threads
      // With pooling.
      {{2, 9, 7, 3}, {17, 3, 3, 3}, {.padding = {1, 1}}},   // one channel more than a vector
      {{1, 4, 70, 2}, {4, 3, 2, 2}, {.padding = {0, 1}}},   // three tiles a row, the last one short
      {{1, 4, 70, 2}, {40, 2, 3, 2}, {.padding = {1, 0}}},  // tiles of 5 and of 6 pairs
      {{2, 2, 2, 8}, {1, 1, 1, 8}, {}},                     // one pixel is left
      {{2, 3, 2, 8}, {20, 1, 1, 8}, {.padding = {3, 3}}},   // more padding than image
      {{2, 6, 6, 1}, {3, 5, 1, 1}, {.padding = {4, 0}}},    // windows of padding alone
      {{7, 64, 64, 4}, {6, 5, 5, 4}, {.padding = {2, 2}}},  // enough for several threads
      {{7, 64, 64, 4}, {32, 5, 5, 4}, {.padding = {2, 2}}},
  };
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

/// Blocks and chunks of Winograd's algorithm, of several threads.
std::vector<ConvCase> large_cases() {
  return {
      {{2, 13, 11, 48}, {80, 3, 3, 48}, {.padding = {2, 2}}},
      {{11, 13, 17, 96}, {32, 3, 3, 96}, {.padding = {1, 1}}},    // in blocks of 24
      {{7, 32, 31, 16}, {16, 3, 3, 16}, {.padding = {1, 1}}},     // weights' gradient in two chunks
      {{11, 18, 19, 32}, {32, 3, 3, 32}, {.padding = {1, 1}}},    // in chunks that differ by a tile
      {{4, 21, 20, 16}, {48, 3, 3, 16}, {.padding = {1, 1}}},     // in chunks of three pieces
      {{4, 21, 20, 64}, {16, 3, 3, 64}, {.padding = {1, 1}}},     // of two panels
      {{2, 30, 30, 256}, {240, 3, 3, 256}, {.padding = {1, 1}}},  // weights' gradient in two blocks
      {{33, 28, 28, 1}, {6, 5, 5, 1}, {}},                        // images in parts
      {{70, 14, 14, 6}, {16, 5, 5, 6}, {}},
  };
}

/// Small images with much padding: taps that meet nothing else, and what a library leaves unwritten there.
std::vector<ConvCase> small_images() {
  std::vector<ConvCase> all;
  const auto for_each_pair = [](std::initializer_list<std::int64_t> values, const auto& f) {
    for (const std::int64_t a : values)
      for (const std::int64_t b : values) f(a, b);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  for (const auto& [c, k] : {Pair{4, 64}, {16, 16}, {3, 8}})
    for (const auto& [r, s] : {Pair{3, 3}, {1, 3}, {5, 5}})
      for_each_pair({1, 2, 3}, [&, c = c, k = k, r = r, s = s](std::int64_t h, std::int64_t w) {
        for_each_pair({1, 2}, [&](std::int64_t sh, std::int64_t sw) {
          for_each_pair({0, 1, 2}, [&](std::int64_t ph, std::int64_t pw) {
            for (const std::int64_t d : {1, 2}) {
              if (h + 2 * ph < d * (r - 1) + 1 || w + 2 * pw < d * (s - 1) + 1) continue;
              all.push_back({{2, h, w, c},
                             {k, r, s, c},
                             {.stride = {sh, sw}, .padding = {ph, pw}, .dilation = {d, d}}});
            }
          });
        });
      });
  return all;
}

/// What a caller may ask of an implementation.
struct Request {
  Pass pass;
  bool bias = false;
  cpu::Fused fused = {};
};
const Request kRequests[] = {
    {Pass::conv_forward},
    {Pass::conv_forward, true},
    {Pass::conv_forward, false, {.activation = Activation::relu}},
    {Pass::conv_forward, true, {.activation = Activation::relu}},
    {Pass::conv_forward, false, {.packed = true}},
    {Pass::conv_forward, true, {.activation = Activation::relu, .packed = true}},
    {Pass::conv_forward, true, {.residual = true, .packed = true}},
    {Pass::conv_forward, true, {.activation = Activation::relu, .residual = true, .packed = true}},
    {Pass::conv_forward, true, {.activation = Activation::gelu, .packed = true}},
    {Pass::conv_forward, true, {.activation = Activation::silu, .packed = true}},
    {Pass::conv_forward, true, {.activation = Activation::hardswish, .packed = true}},
    {Pass::conv_forward, true, {.activation = Activation::relu6, .residual = true, .packed = true}},
    {Pass::conv_forward, false, {.activation = Activation::relu, .packed = true, .pooled = true}},
    {Pass::conv_forward, true, {.activation = Activation::relu, .packed = true, .pooled = true}},
    {Pass::conv_backward_data},
    {Pass::conv_backward_data, false, {.accumulate = true}},
    {Pass::conv_backward_weights},
    {Pass::conv_backward_weights, false, {.accumulate = true}},
};

struct Result {
  Tensor out;
  cpu::Fused fused;  ///< what is in it
};

cpu::PrimitiveKey key_of(const Request& asked, const ConvCase& c, DType dtype) {
  const ConvSize z(c.x, c.w, conv2d_shape(c.x, c.w, c.params), c.params);
  cpu::PrimitiveKey key = cpu::conv_key(cpu_context(), asked.pass, z, dtype, dtype);
  key.bias = asked.bias;
  key.fused = asked.fused;
  return key;
}

/// Of that implementation; null if it has none for it.
cpu::Code code_for(const cpu::ListEntry& entry, const Request& asked, const ConvCase& c, DType dtype) {
  if (asked.fused.packed && dtype != DType::f32 && dtype != DType::bf16) return {};
  const cpu::Code code =
      cpu::find_code(cpu_context(), {&entry, 1}, key_of(asked, c, dtype), entry.implementation->name);
  return code.fused.packed == asked.fused.packed ? code : cpu::Code{};
}

/// Empty if that implementation has no code for it. A residual is dy; what is added to, x or w.
std::optional<Result> run(const cpu::ListEntry& entry, const Request& asked, const ConvCase& c,
                          const ConvOperands& t) {
  CpuContext& context = cpu_context();
  const cpu::Code code = code_for(entry, asked, c, t.x.dtype());
  if (!code) return {};
  const bool to_x = asked.pass == Pass::conv_backward_data, to_w = asked.pass == Pass::conv_backward_weights;
  const Tensor &start = to_x ? t.x : to_w ? t.w : t.dy, &second = to_w ? t.dy : t.w;
  Shape shape = start.shape();
  if (asked.fused.pooled) shape = {shape[0], shape[1] / 2, shape[2] / 2, shape[3]};
  const Tensor out = Tensor::empty(shape, {code.out});
  if (code.fused.accumulate) kernels::copy(context, start, out);
  std::optional<kernels::PackedWeights> packed;
  if (code.fused.packed)
    packed.emplace(cast(t.w, DType::f32), cast(t.bias, DType::f32), Tensor(), Tensor(), t.w.dtype());
  const Tensor& bias = packed ? packed->bias() : t.bias;
  code.primitive->run(context, {to_x ? t.dy.raw_data() : t.x.raw_data(),
                                packed ? packed->in(context, code.primitive->layout()) : second.raw_data(),
                                asked.bias ? bias.raw_data() : nullptr, out.raw_data(),
                                code.fused.residual ? t.dy.raw_data() : nullptr});
  return Result{out, code.fused};
}

/// The passes of the definition in f64, without a bias.
struct Definition {
  ConvOperands t;
  Tensor y, dx, dw;

  Definition(const ConvCase& c, const ConvOperands& narrow)
      : t(narrow.in_f64()), y(empty_like(t.dy)), dx(empty_like(t.x)), dw(empty_like(t.w)) {
    Conv2dParams params = c.params;
    params.impl = ConvImpl::reference;
    kernels::conv2d_forward(cpu_context(), params, t.x, t.w, {}, y);
    kernels::conv2d_backward_data(cpu_context(), params, t.dy, t.w, dx);
    kernels::conv2d_backward_weights(cpu_context(), params, t.x, t.dy, dw, Write::overwrite, {}, {});
  }

  Tensor result(const Request& asked, const cpu::Fused& fused) const {
    if (asked.pass == Pass::conv_backward_data) return fused.accumulate ? dx + t.x : dx;
    if (asked.pass == Pass::conv_backward_weights) return fused.accumulate ? dw + t.w : dw;
    Tensor found = asked.bias ? y + t.bias : y;
    if (fused.residual) found = found + t.dy;
    if (fused.pooled) found = max_pool2d(found);
    return test::activated(fused.activation, found);
  }
};

std::string describe(const cpu::ListEntry& entry, const Request& asked, const ConvCase& c, DType dtype) {
  const auto& [activation, residual, accumulate, packed, sums, pooled] = asked.fused;
  return fmt::format("{}, {}, bias {} {} residual {} accumulate {} packed {} pooled {}: {}",
                     entry.implementation->name, cpu::pass_name(asked.pass), asked.bias,
                     test::name_of(activation), residual, accumulate, packed, pooled,
                     test::name(c, dtype, c.params.impl));
}

/// Calls f(entry, request) for all.
template <class F> void for_each_request(const F& f) {
  for (const Pass pass : kPasses)
    for (const cpu::ListEntry& entry : cpu::conv_list(pass))
      for (const Request& asked : kRequests)
        if (asked.pass == pass) f(entry, asked);
}

class ConvList : public testing::TestWithParam<DType> {};

/// Of the largest value, before rounding to a half type. Values are multiples of 1/8, so that sums of
/// products are exact; Winograd's algorithm alone rounds, more where the largest is one of few or a sum of
/// many. Other code that does not add the products themselves has a row of its own here.
double tolerance(const cpu::ListEntry& entry, const ConvCase& c) {
  if (entry.implementation->name != "winograd") return 1e-6;
  return c.x.numel() < 1000 || c.w[0] > 256 ? 2e-5 : 4e-6;
}

void expect_the_definition(const std::vector<ConvCase>& of, DType dtype) {
  int runs = 0;
  for (const ConvCase& c : of) {
    const ConvOperands operands(c, dtype);
    const Definition expected(c, operands);
    for_each_request([&](const cpu::ListEntry& entry, const Request& asked) {
      const auto found = run(entry, asked, c, operands);
      if (!found) return;
      ++runs;
      const DType out = found->out.dtype();
      EXPECT_TRUE(test::close(found->out, expected.result(asked, found->fused),
                              tolerance(entry, c) + (is_half(out) ? test::epsilon_of(out) : 0)))
          << describe(entry, asked, c, dtype);
    });
  }
  EXPECT_GT(runs, 0);
}

TEST_P(ConvList, EveryImplementationMatchesTheDefinition) {
  expect_the_definition(cases(), GetParam());
}

TEST_P(ConvList, LargeCasesMatchTheDefinition) {
  expect_the_definition(large_cases(), GetParam());
}

TEST_P(ConvList, SmallImagesMatchTheDefinition) {
  const std::vector<ConvCase> all = small_images();
  EXPECT_GT(all.size(), 1500u);
  expect_the_definition(all, GetParam());
}

constexpr DType kFloating[] = {DType::f64, DType::f32, DType::f16, DType::bf16};
INSTANTIATE_TEST_SUITE_P(Dtypes, ConvList, testing::ValuesIn(kFloating),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

/// In how many dtypes this CPU must have code, at least. An implementation that needs more than AVX2 has a
/// row of its own here.
std::size_t least_dtypes(const cpu::Implementation& one) {
  if (one.name == "reference") return std::size(kFloating);
  return one.name != "vendor" && cpu::has_avx2() ? 1 : 0;
}

TEST(ConvImplementations, EachHasACaseInADtype) {
  std::map<const cpu::Implementation*, std::set<DType>> found;
  for (const ConvCase& c : cases()) {
    for_each_request([&](const cpu::ListEntry& entry, const Request& asked) {
      std::set<DType>& of = found[entry.implementation];
      for (const DType dtype : kFloating)
        if (!of.contains(dtype) && code_for(entry, asked, c, dtype)) of.insert(dtype);
    });
  }
  for (const auto& [implementation, dtypes] : found) {
    EXPECT_GE(dtypes.size(), least_dtypes(*implementation)) << implementation->name;
  }
}

TEST(ConvImplementations, OfOursHaveTheSameBitsByAnyNumberOfThreads) {
  std::vector<ConvCase> all = cases();
  const std::vector<ConvCase> large = large_cases();
  all.insert(all.end(), large.begin(), large.end());
  for (const ConvCase& c : all) {
    const ConvOperands operands(c, DType::f32, test::rounded_values);
    for_each_request([&](const cpu::ListEntry& entry, const Request& asked) {
      const std::string_view name = entry.implementation->name;
      if (name == "vendor" || name == "reference" || !run(entry, asked, c, operands)) return;
      SCOPED_TRACE(describe(entry, asked, c, DType::f32));
      test::expect_same_by_threads([&] { return std::vector{run(entry, asked, c, operands)->out}; }, {2, 3});
    });
  }
}

// Only code for packed weights may lose a NaN.
TEST(ConvImplementations, ReluKeepsNan) {
  const Request asked{Pass::conv_forward, false, {.activation = Activation::relu}};
  for (const ConvCase& c : cases()) {
    ConvOperands operands(c, DType::f32);
    kernels::fill(cpu_context(), operands.x, std::numeric_limits<double>::quiet_NaN());
    Conv2dParams params = c.params;
    params.impl = ConvImpl::reference;
    if (conv2d(operands.x, operands.w, {}, params).to_vector()[0] == 0) continue;  // of padding alone
    for (const cpu::ListEntry& entry : cpu::conv_list(asked.pass)) {
      const auto found = run(entry, asked, c, operands);
      if (!found || found->fused.activation == Activation::none) continue;
      EXPECT_TRUE(std::isnan(found->out.to_vector()[0])) << describe(entry, asked, c, DType::f32);
    }
  }
}

// A caller may name an implementation of which another pass has none, or one that does not say what it needs.
TEST(ConvImplementations, AskedForInVainAreAnError) {
  const cpu::Implementation silent{.name = "silent",
                                   .fuses = {},
                                   .fits = [](const cpu::PrimitiveKey&) { return false; },
                                   .make = [](const cpu::PrimitiveKey&) { return cpu::MadePrimitive{}; }};
  cpu::Implementation needy = silent;
  needy.name = "needy";
  needy.needs = [](const cpu::PrimitiveKey&) { return std::string("needy code needs luck"); };
  const cpu::ListEntry list[] = {{&silent}, {&needy}};
  const cpu::PrimitiveKey key = key_of({Pass::conv_backward_data}, cases().front(), DType::bf16);
  const auto asked = [&](std::string_view name) { cpu::require_code(cpu_context(), list, key, name); };
  EXPECT_ERROR(BackendError, asked("of another pass"), "conv2d", "of another pass", "backward_data", "bf16");
  EXPECT_ERROR(BackendError, asked("silent"), "conv2d", "silent", "backward_data", "bf16");
  EXPECT_ERROR(BackendError, asked("needy"), "conv2d", "luck");
}

/// The name of the code that `automatic` takes for packed weights.
std::string_view of_packed(const ConvCase& c, DType dtype = DType::f32) {
  const Request asked{Pass::conv_forward, true, {.activation = Activation::relu, .packed = true}};
  return cpu::find_code(cpu_context(), cpu::conv_list(asked.pass), key_of(asked, c, dtype),
                        name_of(ConvImpl::automatic))
      .by->name;
}

TEST(ConvImplementations, LargeFiltersForFewPixelsAreReadInBf16) {
  if (!cpu::has_avx512_bf16() || !cpu::has_onednn()) GTEST_SKIP() << "this CPU does not multiply bf16";
  const auto taken = [](std::int64_t images, std::int64_t side, std::int64_t channels) {
    return of_packed({{images, side, side, channels}, {channels, 3, 3, channels}, {.padding = {1, 1}}},
                     DType::bf16);
  };
  EXPECT_EQ(taken(1, 4, 512), "vendor");
  EXPECT_EQ(taken(1, 14, 256), "vendor");
  if (cpu::has_amx_bf16()) return;  // whose tiles are faster in all cases
  EXPECT_EQ(taken(64, 8, 256), "winograd") << "many pixels";
  EXPECT_EQ(taken(1, 16, 128), "winograd") << "smaller filters";
}

TEST(ConvImplementations, FewPixelsGoToTheirOwnCode) {
  if (!cpu::has_avx2()) GTEST_SKIP() << "this CPU has no AVX2";
  const auto takes = [](const Shape& x, const Shape& w, const Conv2dParams& params) {
    return of_packed({x, w, params}) == "few_pixels";
  };
  EXPECT_TRUE(takes({1, 4, 4, 256}, {512, 3, 3, 256}, {.padding = {1, 1}}));
  EXPECT_TRUE(takes({1, 5, 5, 512}, {272, 1, 1, 512}, {}));
  EXPECT_EQ(takes({1, 7, 7, 512}, {272, 1, 1, 512}, {}), !cpu::has_onednn()) << "1 x 1, 49 pixels";
  EXPECT_TRUE(takes({1, 7, 7, 128}, {128, 3, 3, 128}, {.stride = {2, 2}, .padding = {1, 1}}));
  EXPECT_FALSE(takes({2, 8, 8, 128}, {256, 3, 3, 128}, {.padding = {1, 1}})) << "128 pixels";
  EXPECT_FALSE(takes({1, 4, 4, 64}, {64, 3, 3, 64}, {.padding = {1, 1}})) << "small filters";
  EXPECT_FALSE(takes({1, 4, 4, 256}, {500, 3, 3, 256}, {.padding = {1, 1}})) << "500 channels";
  EXPECT_FALSE(takes({1, 4, 4, 256}, {512, 3, 3, 128}, {.padding = {1, 1}, .groups = 2}));
}

TEST(ConvImplementations, WideDepthwiseFiltersGoToTheirOwnCode) {
  if (!cpu::has_avx2()) GTEST_SKIP() << "this CPU has no AVX2";
  const auto taken = [](const Shape& w, const Conv2dParams& params, DType dtype) {
    const Request asked{Pass::conv_backward_weights};
    return cpu::find_code(cpu_context(), cpu::conv_list(asked.pass),
                          key_of(asked, {{2, 14, 14, 32}, w, params}, dtype), name_of(ConvImpl::automatic))
        .by->name;
  };
  for (const std::int64_t side : {5, 7})
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
      EXPECT_EQ(taken({32, side, side, 1}, {.padding = {side / 2, side / 2}, .groups = 32}, dtype), "direct");
  EXPECT_EQ(taken({32, 3, 3, 1}, {.groups = 32}, DType::f16), "direct") << "which oneDNN does not have";
  if (cpu::has_onednn()) {
    EXPECT_EQ(taken({32, 3, 3, 1}, {.groups = 32}, DType::f32), "vendor");
  }
  EXPECT_NE(taken({64, 5, 5, 1}, {.groups = 32}, DType::f32), "direct") << "two filters for each channel";
  EXPECT_NE(taken({32, 5, 5, 2}, {.groups = 16}, DType::f32), "direct");
  EXPECT_NE(taken({32, 5, 5, 1}, {.dilation = {1, 2}, .groups = 32}, DType::f32), "direct");
}

class PackedConv : public testing::TestWithParam<DType> {};

// What code does not fuse follows in a pass of its own, and is rounded once more. oneDNN adds a wrong
// residual to pixels of padding alone.
TEST_P(PackedConv, GivesTheSameByAnyImplementation) {
  const DType dtype = GetParam();
  const double tolerance = 1e-5 + (is_half(dtype) ? 3 * test::epsilon_of(dtype) : 0);
  for (const ConvCase& c : cases()) {
    const ConvOperands operands(c, dtype);
    const kernels::PackedWeights packed(cast(operands.w, DType::f32), cast(operands.bias, DType::f32), {}, {},
                                        dtype);
    const Definition expected(c, operands);
    for (const ConvImpl impl : {ConvImpl::automatic, ConvImpl::reference, ConvImpl::direct}) {
      for (const Activation activation : test::kActivations) {
        for (const bool with_residual : {true, false}) {
          Conv2dParams params = test::with(c.params, activation);
          params.impl = impl;
          const Tensor y = empty_like(operands.dy);
          try {
            kernels::conv2d_packed(cpu_context(), params, operands.x, packed,
                                   with_residual ? operands.dy : Tensor(), y);
          } catch (const BackendError&) {
            ASSERT_EQ(impl, ConvImpl::direct);  // groups, or no AVX2
            continue;
          }
          Tensor all = expected.y + expected.t.bias;
          if (with_residual) all = all + expected.t.dy;
          all = test::activated(activation, all);
          EXPECT_TRUE(test::close(y, all, tolerance))
              << test::name(c, dtype, impl) << " activation " << static_cast<int>(activation) << " residual "
              << with_residual;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, PackedConv, testing::Values(DType::f32, DType::bf16),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace athanor::conv_list_test
