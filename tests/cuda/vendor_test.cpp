// cuDNN and cuBLASLt against the CPU's reference kernels, on a GPU.

#include "kernels/cuda/vendor.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "kernels/copy.h"
#include "kernels/cpu/context.h"
#include "kernels/cuda/context.h"
#include "kernels/cuda/conv_list.h"
#include "kernels/cuda/matmul_list.h"
#include "kernels/cuda/vendor_impl.h"
#include "kernels/elementwise.h"
#include "kernels/norm.h"
#include "tensor/cuda/runtime.h"
#include "tensor/graph.h"
#include "tests/cuda/products.h"
#include "tests/support/folder.h"
#include "tests/support/temp_dir.h"

namespace athanor::vendor_test {

class OnGpu : public test::DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    saved_ = vendor().options();
    cuda::VendorOptions options;
    options.plan_directory = dir_.path() / "plans";
    options.autotune = false;  // the tests that are about it turn it on
    vendor().set_options(options);
    vendor().clear();
  }
  void TearDown() override {
    if (!IsSkipped()) {
      vendor().set_options(saved_);
      vendor().clear();
      context().deterministic = context().tf32 = false;
      EXPECT_EQ(vendor().stats().refused + vendor().stats().fallbacks, 0) << "a plan was refused";
    }
    DeviceTest::TearDown();
  }
  CudaContext& context() { return test::context(); }
  cuda::Vendor& vendor() { return context().vendor(); }
  void autotune() {
    cuda::VendorOptions options = vendor().options();
    options.autotune = true;
    vendor().set_options(options);
  }
  bool supported(DType dtype) { return dtype != DType::bf16 || context().sm() >= 80; }

  test::TempDir dir_;

 private:
  cuda::VendorOptions saved_;
};

constexpr DType kDTypes3[] = {DType::f32, DType::f16, DType::bf16};

Tensor values(const Shape& shape, DType dtype, std::uint64_t seed) {
  return test::filled({shape}, dtype, {seed}, -1, 1);
}
Tensor empty(const Shape& shape, DType dtype) {
  return Tensor::empty(shape, {dtype, test::device()});
}
/// Rounding of the result, and of sums of `terms` products in f32.
double tolerance(DType dtype, std::int64_t terms) {
  return test::epsilon_of(dtype) + 4 * std::sqrt(static_cast<double>(terms)) * test::epsilon_of(DType::f32);
}

// Convolution
// ------------------------------------------------------------------------------------------------

struct ConvCase {
  Shape x, w;
  Conv2dParams params;
  bool bias = false;
};

/// A plain product.
ConvCase pointwise_case() {
  return {{4, 14, 14, 32}, {64, 1, 1, 32}, {.activation = Activation::gelu}, true};
}

std::vector<ConvCase> conv_cases() {
  return {
      {{4, 14, 14, 32}, {64, 3, 3, 32}, {.padding = {1, 1}}},
      {{4, 14, 14, 32}, {64, 3, 3, 32}, {.stride = {2, 2}, .padding = {1, 1}}, true},
      {{4, 14, 14, 32}, {16, 1, 1, 32}, {.stride = {2, 2}}},
      {{4, 15, 13, 8},
       {8, 3, 3, 8},
       {.padding = {2, 2}, .dilation = {2, 2}, .activation = Activation::relu},
       true},
      {{2, 28, 28, 3}, {16, 7, 7, 3}, {.stride = {2, 2}, .padding = {3, 3}}},
      {{2, 12, 12, 1}, {6, 5, 5, 1}, {.padding = {2, 2}, .activation = Activation::relu}, true},
      {{2, 9, 9, 16}, {32, 3, 3, 4}, {.padding = {1, 1}, .groups = 4}},
      {{2, 9, 9, 16}, {16, 3, 3, 16}, {.padding = {1, 1}, .activation = Activation::gelu}, true},
      {{2, 9, 9, 16}, {16, 3, 3, 16}, {.padding = {1, 1}, .activation = Activation::relu}},
      pointwise_case(),
  };
}

class ConvOnGpu : public OnGpu {
 protected:
  /// c's parameters for a place: the definition, or the vendor, who throws where it has no plan.
  template <class Place> static Conv2dParams params_on(const Place& on, const ConvCase& c) {
    Conv2dParams params = c.params;
    params.impl = on.device.is_cpu() ? ConvImpl::reference : ConvImpl::vendor;
    return params;
  }

  /// Every pass of every case, compared with the CPU.
  void check_all(DType dtype) {
    for (const ConvCase& c : conv_cases()) check(c, dtype);
  }

  void check(const ConvCase& c, DType dtype) {
    SCOPED_TRACE(fmt::format("{} {} {}", dtype, c.x, c.w));
    const Shape shape = conv2d_shape(c.x, c.w, c.params);
    const Tensor x = values(c.x, dtype, 1), w = values(c.w, dtype, 2), dy = values(shape, dtype, 3);
    const Tensor bias = c.bias ? values({c.w[0]}, dtype, 4) : Tensor();
    const double of_y = tolerance(dtype, c.w[1] * c.w[2] * c.w[3]),
                 of_dx = tolerance(dtype, c.w[0] * c.w[1] * c.w[2]),
                 of_dw = tolerance(dtype, shape[0] * shape[1] * shape[2]);
    test::expect_as_on_cpu(
        [&](const auto& on) {
          const Conv2dParams params = params_on(on, c);
          const Tensor y = on.empty(shape, dtype), dx = on.empty(c.x, dtype), dw = on.empty(c.w, dtype),
                       sum = on.empty(c.x, dtype);
          kernels::conv2d_forward(on.context, params, on(x), on(w), on(bias), y);
          kernels::conv2d_backward_data(on.context, params, on(dy), on(w), dx);
          kernels::copy(on.context, dx, sum);
          kernels::conv2d_backward_data(on.context, params, on(dy), on(w), sum, Write::accumulate);
          kernels::conv2d_backward_weights(on.context, params, on(x), on(dy), dw, Write::overwrite, {},
                                           Write::overwrite);
          return std::vector{y, dx, sum, dw};
        },
        // With an activation of its own, a half y is rounded twice.
        {2 * of_y, of_dx, 3 * of_dx, of_dw});
  }

  void check_weight_gradients(const ConvCase& c) {
    const Shape shape = conv2d_shape(c.x, c.w, c.params);
    for (const DType dtype : kDTypes3) {
      if (!supported(dtype)) continue;
      for (const DType out : {dtype, DType::f32}) {
        const Tensor x = values(c.x, dtype, 1), dy = values(shape, dtype, 2);
        test::expect_as_on_cpu(
            [&](const auto& on) {
              const Tensor dw = on(values(c.w, out, 3)), dbias = on(values({c.w[0]}, out, 4));
              kernels::conv2d_backward_weights(on.context, params_on(on, c), on(x), on(dy), dw,
                                               Write::accumulate, dbias, Write::accumulate);
              return std::vector{dw, dbias};
            },
            {2 * tolerance(dtype, 4 * 14 * 14)});
      }
    }
  }
};

TEST_F(ConvOnGpu, EqualsTheReference) {
  // cuDNN has a plan for each of them, on every architecture we build for.
  for (const DType dtype : kDTypes3) {
    if (supported(dtype)) check_all(dtype);
  }
}

TEST_F(ConvOnGpu, MeasuredPlansEqualTheReference) {
  autotune();
  for (const DType dtype : kDTypes3) {
    const std::int64_t before = vendor().stats().tuned;
    if (!supported(dtype)) continue;
    check_all(dtype);
    EXPECT_GE(vendor().stats().tuned, before + 2 * std::ssize(conv_cases()))
        << name_of(dtype);  // some are equal
  }
}

TEST_F(ConvOnGpu, Tf32IsAskedForByName) {
  const ConvCase c = conv_cases()[0];
  const Tensor x = values(c.x, DType::f32, 1), w = values(c.w, DType::f32, 2);
  const Shape shape = conv2d_shape(c.x, c.w, c.params);
  const Tensor y = Tensor::empty(shape), y_on = empty(shape, DType::f32);
  Conv2dParams params = c.params;
  params.impl = ConvImpl::reference;
  kernels::conv2d_forward(cpu_context(), params, x, w, {}, y);
  params.impl = ConvImpl::vendor;
  const auto error = [&] {
    kernels::conv2d_forward(context(), params, x.to(test::device()), w.to(test::device()), {}, y_on);
    return test::max_relative_error(y_on.to(kCpu), y);
  };
  EXPECT_LT(error(), tolerance(DType::f32, 288));
  context().tf32 = true;
  const double rounded = error();
  EXPECT_LT(rounded, 2e-3);
  // Where cuDNN's first guess is an engine on tensor cores, it shows.
  cudnn::ConvSignature z =
      cudnn::conv_signature(cudnn::Graph::Pass::forward, DType::f32, c.x, c.w, shape, false, c.params);
  z.rules.tf32 = true;
  const auto device = cudnn::DeviceProperties::of_device(test::device().index);
  const cuda::Found<cudnn::Plan> guess = cudnn::find_conv_plans(z, device, 1);
  ASSERT_FALSE(guess.plans.empty());
  EXPECT_EQ(guess.plans[0].tensor_cores(), context().sm() >= 80);
  if (guess.plans[0].tensor_cores()) {
    EXPECT_GT(rounded, 1e-5);
  }
}

TEST_F(ConvOnGpu, ReluKeepsNaN) {
  for (const DType dtype : kDTypes3) {
    if (!supported(dtype)) continue;
    const Tensor x = values({2, 8, 8, 16}, dtype, 1).to(test::device()),
                 w = values({16, 3, 3, 16}, dtype, 2).to(test::device());
    Tensor bias = Tensor::zeros({16}, {dtype});
    dispatch_floating(dtype, "test", [&]<class T>() { bias.data<T>()[3] = T(NAN); });
    const Tensor y = empty({2, 8, 8, 16}, dtype);
    const Conv2dParams params{.padding = {1, 1}, .activation = Activation::relu, .impl = ConvImpl::vendor};
    kernels::conv2d_forward(context(), params, x, w, bias.to(test::device()), y);
    const std::vector<double> got = y.to_vector();
    for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::isnan(got[i]), i % 16 == 3) << i;
  }
}

TEST_F(ConvOnGpu, WeightGradientsAccumulateAndWiden) {
  check_weight_gradients(conv_cases()[0]);
}

// By cuBLASLt, whatever cuDNN could do: its algorithms are kept as if they had been measured.
TEST_F(ConvOnGpu, PointwiseProductsEqualTheReference) {
  const ConvCase c = pointwise_case();
  const Shape shape = conv2d_shape(c.x, c.w, c.params);
  cuda::Vendor::Impl& impl = vendor().impl();
  for (const DType dtype : kDTypes3) {
    if (!supported(dtype)) continue;
    int kept = 0;
    for (const auto pass :
         {cuda::ConvPass::forward, cuda::ConvPass::backward_data, cuda::ConvPass::backward_weights}) {
      for (const bool accumulate : {false, true}) {
        cudnn::ConvSignature z = cudnn::conv_signature(pass, dtype, c.x, c.w, shape, c.bias, c.params);
        z.accumulate = accumulate;
        for (const cublas::Algorithm& algorithm : cublas::propose(impl.cublas(), *cuda::product_of(z), 1))
          kept += impl.folder.save(z.str(), {write(cuda::ConvPlan{std::nullopt, algorithm}), 1, 2});
      }
    }
    EXPECT_EQ(kept, 6) << name_of(dtype);
    const std::int64_t before = vendor().stats().plans_loaded;
    check(c, dtype);
    EXPECT_EQ(vendor().stats().plans_loaded, before + 4) << name_of(dtype);
  }
  check_weight_gradients(c);
}

using Shortcut = cudnn::ConvSignature::Shortcut;

/// A norm before a convolution, and what a shortcut adds, as kernels take them.
struct NormCase {
  Shortcut shortcut;
  kernels::PendingNorm norm, other;
  Tensor w, dy, others;
  Conv2dParams params;

  NormCase(const ConvCase& c, Shortcut wanted) : shortcut(wanted), params(c.params) {
    const auto make = [&](std::uint64_t seed) {
      const Shape channels{c.x[3]};
      const auto of_channels = [&](std::uint64_t more, double low, double high) {
        return test::filled({channels}, DType::f32, {seed + more}, low, high).to(test::device());
      };
      const Tensor x = test::filled({c.x}, DType::f16, {seed}, -1, 2).to(test::device());
      // The sums of a uniform distribution, about: what they are is of no importance.
      const double n = static_cast<double>(x.numel() / c.x[3]);
      const Tensor sums = Tensor::empty({2, c.x[3]});
      for (std::int64_t i = 0; i < c.x[3]; ++i) {
        sums.data<float>()[i] = static_cast<float>(n * 0.5);
        sums.data<float>()[c.x[3] + i] = static_cast<float>(n * (1 + 0.02 * static_cast<double>(i)));
      }
      const Tensor stats = empty({2, c.x[3]}, DType::f32), coefficients = empty({2, c.x[3]}, DType::f16);
      const Tensor gamma = of_channels(1, 0.5, 1.5), beta = of_channels(2, -1, 1);
      kernels::batch_norm_coefficients(
          test::context(), {x, gamma, beta, 1e-5, {}, stats, sums.to(test::device())}, coefficients);
      return kernels::PendingNorm{x, gamma, beta, stats, coefficients};
    };
    norm = make(10);
    if (shortcut == Shortcut::tensor) norm.residual = values(c.x, DType::f16, 20).to(test::device());
    if (shortcut == Shortcut::norm) other = make(30), norm.other = &other;
    w = values(c.w, DType::f16, 2).to(test::device());
    dy = values(conv2d_shape(c.x, c.w, params), DType::f16, 3).to(test::device());
    if (shortcut != Shortcut::none) others = values(c.x, DType::f16, 4).to(test::device());
  }
  NormCase(const NormCase&) = delete;
  NormCase& operator=(const NormCase&) = delete;

  /// Results of all passes that there are, by that implementation.
  std::vector<Tensor> run(ConvImpl impl) {
    params.impl = impl;
    CudaContext& context = test::context();
    const Tensor y = empty_like(dy), sums = empty({2, w.dim(0)}, DType::f32), g = empty_like(norm.x),
                 of_g = empty({shortcut == Shortcut::norm ? 4 : 2, w.dim(3)}, DType::f32), dw = empty_like(w);
    const Tensor stored = shortcut == Shortcut::none ? Tensor() : empty_like(norm.x);
    std::vector<Tensor> results{y, sums, g, of_g};
    EXPECT_TRUE(kernels::conv2d_forward_sums(context, params, norm, w, stored, y, sums));
    EXPECT_TRUE(kernels::conv2d_backward_data_sums(context, params, dy, w, norm, others, g, of_g));
    if (shortcut == Shortcut::none) {
      EXPECT_TRUE(kernels::conv2d_backward_weights(context, params, norm, dy, dw, Write::overwrite));
      results.push_back(dw);
    } else {
      results.push_back(stored);
    }
    return results;
  }
};

// cuDNN's plans are kept as if they had been measured to be faster. Scale and shift are rounded to f16.
TEST_F(ConvOnGpu, NormsBeforeConvolutionsEqualTheReference) {
  if (context().sm() != 90) GTEST_SKIP() << "cuDNN has all of it for Hopper";
  autotune();
  for (const ConvCase& c : {ConvCase{{8, 14, 14, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}},
                            ConvCase{{8, 14, 14, 64}, {64, 3, 3, 64}, {.stride = {2, 2}, .padding = {1, 1}}},
                            ConvCase{{8, 14, 14, 64}, {32, 1, 1, 64}, {}}}) {
    for (const auto shortcut : {Shortcut::none, Shortcut::tensor, Shortcut::norm}) {
      if (shortcut != Shortcut::none && c.w[1] != 1) continue;
      SCOPED_TRACE(fmt::format("x {} w {} shortcut {}", c.x, c.w, static_cast<int>(shortcut)));
      for (const auto pass :
           {cuda::ConvPass::forward, cuda::ConvPass::backward_data, cuda::ConvPass::backward_weights}) {
        if (shortcut != Shortcut::none && pass == cuda::ConvPass::backward_weights) continue;
        cudnn::ConvSignature z = cudnn::conv_signature(pass, DType::f16, c.x, c.w,
                                                       conv2d_shape(c.x, c.w, c.params), false, c.params);
        z.norm = true;
        z.shortcut = shortcut;
        z.sums = pass == cuda::ConvPass::forward;
        z.others = pass == cuda::ConvPass::backward_data && shortcut != Shortcut::none;
        const auto found = cudnn::find_conv_plans(z, vendor().impl().properties(), 1);
        ASSERT_FALSE(found.plans.empty()) << z.str();
        ASSERT_TRUE(vendor().impl().folder.save(z.str(), {found.plans[0].json(), 1, 2}));
      }
      NormCase norm(c, shortcut);
      const std::int64_t calls = vendor().stats().calls;
      const std::vector<Tensor> ours = norm.run(ConvImpl::reference), found = norm.run(ConvImpl::automatic);
      EXPECT_EQ(vendor().stats().calls, calls + (shortcut == Shortcut::none ? 3 : 2));
      for (std::size_t i = 0; i < ours.size(); ++i)
        EXPECT_LT(test::max_relative_error(found[i].to(kCpu), ours[i].to(kCpu)), 1e-2) << i;
    }
  }
}

// Plans are tried where none is known, and then kept for a model that has diverged.
TEST_F(ConvOnGpu, NormsBeforeConvolutionsKeepNaN) {
  autotune();
  const auto all_nan = [](const Tensor& t) {
    return std::ranges::all_of(t.to_vector(), [](double value) { return std::isnan(value); });
  };
  bool fused = false;
  for (const auto shortcut : {Shortcut::none, Shortcut::tensor, Shortcut::norm}) {
    SCOPED_TRACE(static_cast<int>(shortcut));
    const NormCase norm({{8, 14, 14, 64}, {64, 1, 1, 64}, {}}, shortcut);
    kernels::PendingNorm diverged = norm.norm;
    diverged.coefficients = empty_like(norm.norm.coefficients);
    kernels::affine(context(), norm.norm.coefficients, NAN, 0, diverged.coefficients);
    const Tensor y = empty_like(norm.dy), sums = empty({2, 64}, DType::f32), dw = empty_like(norm.w);
    const Tensor stored = shortcut == Shortcut::none ? Tensor() : empty_like(norm.norm.x);
    const auto forward = [&](const kernels::PendingNorm& of) {
      return kernels::conv2d_forward_sums(context(), norm.params, of, norm.w, stored, y, sums);
    };
    if (forward(norm.norm) && forward(diverged)) {
      fused = true;
      EXPECT_TRUE(all_nan(y));
      if (stored.defined()) {
        EXPECT_TRUE(all_nan(stored));
      }
    }
    if (shortcut != Shortcut::none) continue;
    const auto weights = [&](const kernels::PendingNorm& of) {
      return kernels::conv2d_backward_weights(context(), norm.params, of, norm.dy, dw, Write::overwrite);
    };
    if (weights(norm.norm) && weights(diverged)) {
      fused = true;
      EXPECT_TRUE(all_nan(dw));
    }
  }
  if (!fused) GTEST_SKIP() << "ours is faster, or cuDNN has none";
}

// Whatever is chosen for a shape: the op has a result.
TEST_F(ConvOnGpu, NormsBeforeConvolutionsAreMeasured) {
  autotune();
  const ConvCase c{{8, 14, 14, 64}, {64, 3, 3, 64}, {.padding = {1, 1}}};
  NormCase norm(c, Shortcut::none);
  norm.params.impl = ConvImpl::automatic;
  const std::int64_t tuned = vendor().stats().tuned;
  const Tensor y = empty_like(norm.dy), sums = empty({2, 64}, DType::f32);
  (void)kernels::conv2d_forward_sums(context(), norm.params, norm.norm, norm.w, {}, y, sums);
  EXPECT_GT(vendor().stats().tuned, tuned);
}

TEST_F(ConvOnGpu, DeterministicMeansEqualBits) {
  context().deterministic = true;
  const ConvCase c = conv_cases()[0];
  const Shape shape = conv2d_shape(c.x, c.w, c.params);
  const Tensor x = values(c.x, DType::f16, 1).to(test::device()),
               dy = values(shape, DType::f16, 2).to(test::device());
  Conv2dParams params = c.params;
  params.impl = ConvImpl::vendor;
  std::vector<Tensor> results;
  for (int i = 0; i < 5; ++i) {
    const Tensor dw = empty(c.w, DType::f16);
    vendor().clear();
    kernels::conv2d_backward_weights(context(), params, x, dy, dw, Write::overwrite, {}, Write::overwrite);
    results.push_back(dw.to(kCpu));
    EXPECT_TRUE(test::same_bits(results[0], results.back()));
  }
}

TEST_F(ConvOnGpu, PlansComeBackFromDisk) {
  autotune();
  const ConvCase c = conv_cases()[0];
  check(c, DType::f16);
  const VendorStats before = vendor().stats();
  vendor().clear();
  check(c, DType::f16);
  EXPECT_EQ(vendor().stats().plans_made, before.plans_made);
  EXPECT_EQ(vendor().stats().plans_loaded, before.plans_loaded + 3);
  EXPECT_EQ(vendor().stats().disk_rejected, before.disk_rejected);
}

TEST_F(ConvOnGpu, IsCapturedAndReplayed) {
  const ConvCase c = conv_cases()[0];
  const Shape shape = conv2d_shape(c.x, c.w, c.params);
  const Tensor x = values(c.x, DType::f16, 1), w = values(c.w, DType::f16, 2),
               y = Tensor::empty(shape, {DType::f16});
  const Tensor x_on = x.to(test::device()), w_on = w.to(test::device());
  const Tensor y_on = Tensor::zeros(shape, {DType::f16, test::device()});
  Conv2dParams params = c.params;
  params.impl = ConvImpl::vendor;
  const Stream stream = Stream::create(test::device());
  synchronize(test::device());
  const StreamGuard guard(stream);
  GraphMemory pool(test::device());
  {
    const GraphMemory::Use use(pool);
    kernels::conv2d_forward(context(), params, x_on, w_on, {}, y_on);  // warm-up
  }
  kernels::fill(context(), y_on, 0);

  const auto native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  {
    const GraphMemory::Use use(pool);
    ATH_TRY(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal));
    kernels::conv2d_forward(context(), params, x_on, w_on, {}, y_on);
    ATH_TRY(cudaStreamEndCapture(native, &graph));
  }
  ATH_TRY(cudaGraphInstantiate(&exec, graph, 0));
  ATH_TRY(cudaGraphLaunch(exec, native));
  stream.synchronize();
  params.impl = ConvImpl::reference;
  kernels::conv2d_forward(cpu_context(), params, x, w, {}, y);
  EXPECT_TRUE(test::close(y_on.to(kCpu), y, tolerance(DType::f16, 288)));
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
}

TEST_F(ConvOnGpu, DoesNothingUnlessRequested) {
  const Tensor x = values({1, 8, 8, 8}, DType::f32, 1).to(test::device()),
               w = values({8, 1, 1, 8}, DType::f32, 2).to(test::device()), none,
               y = empty({1, 8, 8, 8}, DType::f32);
  const cuda::ConvCall ours{cuda::ConvPass::forward, {.impl = ConvImpl::reference}, x, w, none, y};
  const cuda::ConvCall any{cuda::ConvPass::forward, {}, x, w, none, y};
  const auto& vendors = cuda::conv_list<CudaContext>()[0];
  EXPECT_FALSE(vendors.takes(context(), ours));
  EXPECT_TRUE(vendors.takes(context(), any));
}

// Matrix products
// --------------------------------------------------------------------------------------------

class MatmulOnGpu : public OnGpu {
 protected:
  void check(const Tensor& a, const Tensor& b, const Shape& shape, DType out, test::ProductOptions how = {}) {
    how.tolerance = a.dtype() == DType::f64 ? 1e-13 : 2 * tolerance(out, 64);
    test::check_product(MatmulImpl::vendor, a, b, values(shape, out, 9), how);
  }
  void check_all() {
    for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
      if (!supported(dtype)) continue;
      SCOPED_TRACE(name_of(dtype));
      const Tensor a = values({48, 64}, dtype, 1), b = values({64, 40}, dtype, 2);
      const Tensor at = test::swapped(values({64, 48}, dtype, 4)),
                   bt = test::swapped(values({40, 64}, dtype, 5));
      for (const Tensor& left : {a, at}) {
        for (const Tensor& right : {b, bt}) {
          check(left, right, {48, 40}, dtype);
          check(left, right, {48, 40}, dtype, {.bias = true});
        }
      }
      for (const Activation activation : {Activation::relu, Activation::gelu, Activation::silu})
        check(a, bt, {48, 40}, dtype, {.activation = activation, .bias = true});
      check(a, b, {48, 40}, dtype, {.write = Write::accumulate});
      for (const bool in_place : {false, true})
        test::check_sum(MatmulImpl::vendor, test::exact({{48, 64}}, dtype, {1}),
                        test::exact({{64, 40}}, dtype, {2}), test::exact({{48, 40}}, dtype, {3}), in_place);
      if (is_half(dtype)) {
        check(a, b, {48, 40}, DType::f32);
        check(a, b, {48, 40}, DType::f32, {.write = Write::accumulate});
      }
      check(values({3, 5, 17, 64}, dtype, 1), values({3, 5, 64, 9}, dtype, 2), {3, 5, 17, 9}, dtype);
      check(values({6, 17, 64}, dtype, 1), values({1, 64, 9}, dtype, 2), {6, 17, 9}, dtype);
      check(values({1, 17, 64}, dtype, 1), values({6, 64, 9}, dtype, 2), {6, 17, 9}, dtype);
      // Nothing is aligned.
      check(test::filled({{17, 33}, test::Layout::misaligned}, dtype, {1}),
            test::filled({{33, 9}, test::Layout::misaligned}, dtype, {2}), {17, 9}, dtype);
    }
  }
};

TEST_F(MatmulOnGpu, EqualsTheReference) {
  check_all();
}

TEST_F(MatmulOnGpu, MeasuredAlgorithmsEqualTheReferenceAndComeBackFromDisk) {
  autotune();
  check_all();
  const VendorStats before = vendor().stats();
  EXPECT_GT(before.tuned, 0);
  vendor().clear();
  check_all();
  EXPECT_EQ(vendor().stats().tuned, before.tuned);
  EXPECT_GT(vendor().stats().plans_loaded, before.plans_loaded);
  EXPECT_EQ(vendor().stats().disk_rejected, before.disk_rejected);
}

TEST_F(MatmulOnGpu, ReluKeepsNaN) {
  const Tensor a = values({32, 16}, DType::f16, 1), b = values({16, 8}, DType::f16, 2);
  a.data<Half>()[5] = Half(NAN);
  const Tensor y = empty({32, 8}, DType::f16);
  kernels::matmul(context(), MatmulImpl::vendor, a.to(test::device()), b.to(test::device()),
                  values({8}, DType::f16, 3).to(test::device()), Activation::relu, y, Write::overwrite);
  const std::vector<double> got = y.to_vector();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(std::isnan(got[i]), i < 8) << i;
}

TEST_F(MatmulOnGpu, AllocatesNothingOncePlanned) {
  const Tensor a = values({64, 64}, DType::f16, 1).to(test::device()), y = empty({64, 64}, DType::f16);
  const auto run = [&] {
    kernels::matmul(context(), MatmulImpl::vendor, a, a, {}, Activation::none, y, Write::overwrite);
  };
  run();
  const std::int64_t growths = allocator_of(test::device()).stats().growths,
                     made = vendor().stats().plans_made;
  for (int i = 0; i < 10; ++i) run();
  EXPECT_EQ(allocator_of(test::device()).stats().growths, growths);
  EXPECT_EQ(vendor().stats().plans_made, made);
}

// The device
// -------------------------------------------------------------------------------------------------

/// Leaves the file that tests/cuda/devices/ should hold for this device in the build tree.
TEST_F(OnGpu, PropertiesAreWrittenDown) {
  const auto device = cudnn::DeviceProperties::of_device(test::device().index);
  EXPECT_EQ(device.sm(), context().sm());
  EXPECT_EQ(device.multiprocessors(), context().multiprocessors());
  const std::string folder = test::folder("ATHANOR_PLANS_DIR", ATHANOR_PLANS_DIR);
  std::filesystem::create_directories(folder);
  std::ofstream(fmt::format("{}/this_device_sm{}.json", folder, device.sm())) << device.json() << "\n";
  EXPECT_EQ(cudnn::DeviceProperties::from_json(device.json()).json(), device.json());
}

}  // namespace athanor::vendor_test
