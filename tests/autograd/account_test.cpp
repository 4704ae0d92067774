// The account of a step, against numbers worked out by hand. tests/cuda/account_test.cpp compares the costs
// of our kernels with what the emulator counts.
#include "autograd/conv_norm.h"
#include "autograd/grad_mode.h"
#include "kernels/account/context.h"
#include "kernels/elementwise.h"
#include "kernels/muon.h"
#include "tensor/base/error.h"
#include "tensor/detail/fresh_memory.h"
#include "tests/support/ops.h"
#include "trainer/plan/step_account.h"
#include "trainer/profile/layers.h"

namespace athanor::account_test {

std::vector<KernelCost> costs_of(const std::function<void()>& run, bool vendor = true) {
  std::vector<KernelCost> costs;
  AccountContext context([&](const KernelCost& cost) { costs.push_back(cost); });
  context.vendor = vendor;
  const AccountScope scope(context);
  run();
  return costs;
}

Tensor leaf(const Shape& shape, DType dtype = DType::f32) {
  Tensor x = Tensor::zeros(shape, {dtype, kCpu});
  require_grad(x);
  return x;
}

TEST(Account, ComputesNothing) {
  const Tensor x = Tensor::from(std::vector<float>{-1, 2}, {2});
  Tensor y;
  const auto costs =
      costs_of([&] { kernels::unary_forward<kernels::Relu>(*detail::account, x, y = clone(x)); });
  ASSERT_EQ(costs.size(), 2u);  // the copy, which is not made, and the ReLU
  EXPECT_STREQ(costs[1].kernel, "relu");
  EXPECT_EQ(costs[1].bytes_read, 8);
  EXPECT_EQ(costs[1].bytes_written, 8);
  EXPECT_EQ(relu(x).to_vector(), (std::vector<double>{0, 2}));  // afterwards the CPU computes again
}

TEST(Account, CountsMemoryOfALaunchOnce) {
  const Tensor x = Tensor::empty({4, 3}), row = Tensor::empty({3}, {DType::f16, kCpu}),
               repeated = row.view_as_strided({4, 3}, {0, 1}, 0);
  const auto costs = costs_of([&] {
    detail::account->launch("twice", {x, x, repeated, Tensor(), 5}, {x});
    detail::account->map("empty", {x}, {Tensor(), Tensor::empty({0})});
    detail::account->map("second", {}, {Tensor(), row});
  });
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].bytes_read, 4 * 3 * 4 + 3 * 2 + 5);
  EXPECT_EQ(costs[0].bytes_written, 4 * 3 * 4);
  EXPECT_EQ(costs[1].bytes_written, 3 * 2);
}

// Norms of [8, 32, 32, 64] and [8, 16, 16, 64] in f32, but for numbers of each channel and partial sums.
TEST(Account, NothingPassesThroughMemoryBetweenANormAndAMaxPooling) {
  constexpr std::int64_t large = 8 * 32 * 32 * 64 * 4, small = large / 4, index = small / 4, slack = 100'000;
  const BatchNormParams relu{.activation = Activation::relu};
  const Shape x{8, 32, 32, 64}, w{64, 1, 1, 64};
  const Tensor none;
  const Pool2dParams stem{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, quarter;
  struct Pass {
    const char* kernel;
    std::int64_t read, written;
  };
  const auto expect = [&](const std::function<Tensor()>& run, const std::vector<Pass>& passes) {
    std::vector<KernelCost> costs = costs_of([&] {
      const Tensor y = run();
      backward(y, Tensor::zeros(y.shape(), y.options()));
    });
    std::erase_if(costs, [](const KernelCost& cost) { return cost.assumed; });
    ASSERT_EQ(costs.size(), passes.size());
    for (std::size_t i = 0; i < passes.size(); ++i) {
      EXPECT_STREQ(costs[i].kernel, passes[i].kernel);
      for (const auto& [found, of] : {std::pair{costs[i].bytes_read, passes[i].read},
                                      std::pair{costs[i].bytes_written, passes[i].written}}) {
        EXPECT_GE(found, of) << passes[i].kernel;
        EXPECT_LE(found, of + slack) << passes[i].kernel;
      }
    }
  };
  const NormArguments norm{none, none, none, none, true, relu};
  expect(
      [&] {
        return conv_norm_max_pool(leaf(x), {leaf(w), none, {}}, norm, stem);
      },
      {{"batch_norm_statistics", large, 0},
       {"batch_norm_max_pool", large, small + index},
       {"batch_norm_sums", large + small + index, 0},
       {"batch_norm_backward", large + small + index, large}});
  expect([&] { return max_pool_norm(leaf(x), quarter, norm); },
         {{"max_pool2d_statistics", large, small + index},
          {"batch_norm", small, small},
          {"batch_norm_sums", 2 * small, 0},
          {"batch_norm_backward", 2 * small + index, large}});
}

// y [2, 4, 4, 8] = conv(x [2, 8, 8, 3], w [8, 3, 3, 3]) by 2 in f16.
TEST(Account, VendorConvolutionsReadInputsAndWriteOutputsOnce) {
  const Tensor x = leaf({2, 8, 8, 3}, DType::f16), w = leaf({8, 3, 3, 3}, DType::f16);
  const auto costs = costs_of([&] {
    const Tensor y = conv2d(x, w, {}, {.stride = {2, 2}, .padding = {1, 1}});
    backward(y, Tensor::zeros(y.shape(), y.options()));
  });
  constexpr std::int64_t of_x = 2 * 8 * 8 * 3 * 2, of_w = 8 * 27 * 2, of_y = 2 * 4 * 4 * 8 * 2;
  constexpr std::int64_t flops = 2 * (2 * 4 * 4 * 8) * 27;
  ASSERT_EQ(costs.size(), 3u);
  const std::int64_t expected[3][2] = {{of_x + of_w, of_y}, {of_y + of_w, of_x}, {of_x + of_y, of_w}};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(costs[i].bytes_read, expected[i][0]) << costs[i].kernel;
    EXPECT_EQ(costs[i].bytes_written, expected[i][1]) << costs[i].kernel;
    EXPECT_EQ(costs[i].flops, flops);
    EXPECT_TRUE(costs[i].assumed);
  }
}

// Products add what the iteration adds: x twice in one product, and A three times, are read once.
TEST(Account, AnIterationOfNewtonAndSchulzIsThreeProducts) {
  const TensorOptions options{DType::bf16, kCpu};
  const Tensor x = Tensor::empty({2, 4, 8}, options), next = empty_like(x),
               gram = Tensor::empty({2, 4, 4}, options), factor = empty_like(gram);
  const auto costs = costs_of([&] {
    kernels::newton_schulz(*detail::account, x, {3, -4, 2}, gram, factor, next);
  });
  constexpr std::int64_t of_x = 2 * 4 * 8 * 2, of_gram = 2 * 4 * 4 * 2;
  constexpr std::int64_t expected[3][3] = {{of_x, of_gram, 2 * 2 * 4 * 4 * 8},
                                           {of_gram, of_gram, 2 * 2 * 4 * 4 * 4},
                                           {of_gram + of_x, of_x, 2 * 2 * 4 * 4 * 8}};
  ASSERT_EQ(costs.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(costs[i].bytes_read, expected[i][0]) << i;
    EXPECT_EQ(costs[i].bytes_written, expected[i][1]) << i;
    EXPECT_EQ(costs[i].flops, expected[i][2]) << i;
  }
}

// Of x, a 1 x 1 filter by 2 touches every other row and column.
TEST(Account, StridesSkipInputs) {
  const Tensor x = leaf({1, 8, 8, 16}), w = leaf({16, 1, 1, 16});
  const auto costs = costs_of([&] { (void)conv2d(x, w, {}, {.stride = {2, 2}}); });
  ASSERT_EQ(costs.size(), 1u);
  EXPECT_EQ(costs[0].bytes_read, 4 * (4 * 4 * 16 + 16 * 16));
}

// Two launches forward: x for the statistics, then x and y; two backward: x and dy, then x, dy and dx.
TEST(Account, BatchNormMovesFiveElementsBackwardAndThreeForward) {
  const Tensor x = leaf({64, 64}), gamma = leaf({64}), beta = leaf({64});
  const auto costs = costs_of([&] {
    const Tensor y = batch_norm(x, gamma, beta, {}, {}, true, {.activation = Activation::relu});
    backward(y, Tensor::zeros(y.shape()));
  });
  ASSERT_EQ(costs.size(), 4u);
  std::int64_t large = 0;
  for (const KernelCost& cost : costs) large += (cost.bytes_read + cost.bytes_written) / (64 * 64 * 4);
  EXPECT_EQ(large, 8);  // the rest, per channel, is less than an element of x in each
}

// The norm then reads y once, and its sums. In f32, and of three channels, the convolution has no sums.
TEST(Account, AConvolutionSumsItsChannelsForANorm) {
  struct Case {
    DType dtype;
    std::int64_t channels;
    bool sums;
  };
  for (const auto& [dtype, channels, sums] : {Case{DType::f16, 8, true}, Case{DType::bf16, 8, true},
                                              Case{DType::f16, 3, false}, Case{DType::f32, 8, false}}) {
    const Tensor x = leaf({2, 8, 8, channels}, dtype), w = leaf({16, 3, 3, channels}, dtype);
    const auto costs = costs_of([&] {
      const Tensor none;
      (void)conv_norm(x, {w, none, {.padding = {1, 1}}}, {none, none, none, none, true, {}});
    });
    ASSERT_EQ(costs.size(), sums ? 2u : 3u) << name_of(dtype) << ' ' << channels;
    if (!sums) continue;
    constexpr std::int64_t of_y = 2 * 8 * 8 * 16 * 2, of_sums = 2 * 16 * 4;
    EXPECT_EQ(costs[0].bytes_written, of_y + of_sums);
    EXPECT_EQ(costs[1].bytes_read, of_y + of_sums);
  }
}

// With a residual, backward reads a bit for each element instead of y: x, dy, bits and dL/d(pre), then x,
// dL/d(pre) and dx. Where rows do not divide by 8 it reads y.
TEST(Account, BatchNormReadsBitsInsteadOfTheResult) {
  for (const std::int64_t channels : {64, 60}) {
    const Tensor x = leaf({64, channels}, DType::f16), gamma = leaf({channels}), beta = leaf({channels}),
                 residual = leaf({64, channels}, DType::f16);
    Tensor y;
    const auto forward = costs_of(
        [&] { y = batch_norm(x, gamma, beta, {}, {}, true, {.activation = Activation::relu}, residual); });
    const auto back = costs_of([&] { backward(y, Tensor::zeros(y.shape(), y.options())); });
    ASSERT_EQ(forward.size(), 2u);
    ASSERT_EQ(back.size(), 2u);
    const std::int64_t element = 2, of_x = 64 * channels * element,
                       bits = channels == 64 ? 64 * channels / 8 : 0, extra = channels == 64 ? bits : of_x,
                       one = channels * 4, partial = forward[0].bytes_written - one;
    EXPECT_EQ(forward[1].bytes_written, of_x + bits + 2 * one);  // and stats
    EXPECT_EQ(back[0].bytes_read, 2 * of_x + extra + one);
    EXPECT_EQ(back[0].bytes_written, of_x + partial);
    EXPECT_EQ(back[1].bytes_read, 2 * of_x + partial + 3 * one);
    EXPECT_EQ(back[1].bytes_written, of_x + 2 * one);
  }
}

StepPlan small_step(const char* model, std::int64_t batch, Precision precision = Precision::f32) {
  return {.model = model, .batch_size = batch, .precision = precision};
}

TEST(StepAccount, SumsItsRows) {
  const StepAccount account = account_for_step(small_step("resnet20", 16, Precision::f16), gpu_named("h200"));
  std::int64_t launches = 0, bytes = 0, flops = 0, assumed = 0;
  double seconds = 0;
  for (const AccountRow& row : account.rows) {
    launches += row.launches, bytes += row.bytes(), flops += row.flops, seconds += row.seconds;
    assumed += row.assumed ? row.bytes() : 0;
    EXPECT_GT(row.launches, 0);
    EXPECT_GE(row.seconds, static_cast<double>(row.launches) * kLaunchSeconds);
  }
  EXPECT_EQ(account.total.launches, launches);
  EXPECT_EQ(account.total.bytes(), bytes);
  EXPECT_EQ(account.total.flops, flops);
  EXPECT_DOUBLE_EQ(account.total.seconds, seconds);
  EXPECT_EQ(account.assumed_bytes, assumed);
  EXPECT_GT(account.peak_bytes, 0);
}

// Forward FLOPs are those of --summary; backward there are twice as many, except for the images' gradient.
TEST(StepAccount, HasTheFlopsOfTheSummary) {
  constexpr std::int64_t kBatch = 4;
  const auto model = nn::make_model("resnet20", {}, 0);
  const auto layers = trace_layers(*model, [&] { (void)(*model)(Tensor::zeros({1, 32, 32, 3})); });
  std::int64_t forward = 0;
  for (const Layer& layer : layers) forward += layer.flops;
  const StepAccount account = account_for_step(small_step("resnet20", kBatch), gpu_named("a100"));
  std::int64_t of[2] = {};
  for (const AccountRow& row : account.rows) of[row.pass == "backward" ? 1 : 0] += row.flops;
  EXPECT_EQ(of[0], kBatch * forward);
  EXPECT_EQ(of[1], kBatch * (2 * forward - layers[0].flops));
}

// conv1 and its batch norm, by hand: 32 x 32 x 16 in f16 for each image.
TEST(StepAccount, NamesLayersAndPasses) {
  const StepAccount account = account_for_step(small_step("resnet20", 8, Precision::f16), gpu_named("h200"));
  const auto row = [&](const char* layer, const char* pass, const char* kernel) {
    const auto found = std::find_if(account.rows.begin(), account.rows.end(), [&](const AccountRow& one) {
      return one.layer == layer && one.pass == pass && one.kernel == kernel;
    });
    EXPECT_NE(found, account.rows.end()) << layer << " " << kernel;
    return found == account.rows.end() ? AccountRow() : *found;
  };
  constexpr std::int64_t y = 8 * 32 * 32 * 16 * 2, x = 8 * 32 * 32 * 3 * 2, w = 16 * 27 * 2;
  EXPECT_EQ(row("conv1", "forward", "conv2d_forward").bytes(), x + w + y);
  EXPECT_EQ(row("conv1", "backward", "conv2d_backward_weights").bytes(), x + w + y);
  EXPECT_EQ(row("bn1", "forward", "batch_norm").launches, 1);
  EXPECT_GT(row("bn1", "backward", "batch_norm_backward").bytes(), 3 * y);
  EXPECT_EQ(row("", "update", "sgd_update").launches, 2);  // half weights, and those that stay f32
  EXPECT_EQ(row("", "update", "finish_step").launches, 1);
}

TEST(StepAccount, TimeIsTheSlowestRoof) {
  const Gpu slow{"slow", "slow", 132, 1e9, 1e9, 1e9, 1e9, 1e9, true};
  const StepAccount account = account_for_step(small_step("resnet20", 8), slow);
  for (const AccountRow& row : account.rows) {
    const double bytes = static_cast<double>(row.bytes()) / 1e9, flops = static_cast<double>(row.flops) / 1e9,
                 launches = static_cast<double>(row.launches) * kLaunchSeconds;
    EXPECT_GE(row.seconds * (1 + 1e-12), std::max({bytes, flops, launches})) << row.layer << row.kernel;
    EXPECT_LE(row.seconds * (1 - 1e-12), bytes + flops + launches) << row.layer << row.kernel;
    if (row.kernel == "conv2d_forward") {
      EXPECT_EQ(row.roof, "compute");
    }
    if (row.kernel == "finish_step") {
      EXPECT_EQ(row.roof, "launch");
    }
  }
}

TEST(StepAccount, RoofIsThatOfTheLongestLaunch) {
  // Megabytes of half weights, then kilobytes of those that stay f32.
  const Gpu gpu{"gpu", "gpu", 132, 1e11, 1e15, 1e15, 1e15, 1e15, true};
  const StepAccount account = account_for_step(small_step("resnet20", 8, Precision::f16), gpu);
  const auto update = std::ranges::find(account.rows, "sgd_update", &AccountRow::kernel);
  ASSERT_NE(update, account.rows.end());
  EXPECT_EQ(update->launches, 2);
  EXPECT_LT(update->seconds, static_cast<double>(update->bytes()) / gpu.bytes_per_s + kLaunchSeconds);
  EXPECT_EQ(update->roof, "memory");
}

TEST(StepAccount, KnowsOptimizersAndAccumulation) {
  StepPlan plan = small_step("resnet20", 8, Precision::f16);
  const std::int64_t sgd = account_for_step(plan, gpu_named("h200")).total.launches;
  plan.accumulate = 2;
  const StepAccount twice = account_for_step(plan, gpu_named("h200"));
  EXPECT_GT(twice.total.launches, sgd * 3 / 2);
  EXPECT_LT(twice.total.launches, 2 * sgd + 80);  // gradients in f32 are added to
  plan.accumulate = 1;
  plan.optimizer = OptimizerKind::muon;
  EXPECT_GT(account_for_step(plan, gpu_named("h200")).total.launches, sgd + 50);
}

TEST(StepAccount, UnknownGpusGetTheListOfKnownOnes) {
  const std::string text = test::message_of([] { (void)gpu_named("h300"); });
  EXPECT_TRUE(test::names(text, {"h300", "a10", "a100-40gb", "h200", "rtx4090", "t4"}));
}

// What the account is for: a ResNet-50 step of 256 images in f16.
TEST(StepAccount, OfResNet50) {
  detail::fill_fresh_memory = false;  // 25 GB of address space, which nothing touches
  const StepAccount account =
      account_for_step(small_step("resnet50", 256, Precision::f16), gpu_named("h200"));
  detail::fill_fresh_memory = true;
  EXPECT_EQ(account.total.launches, 292);
  EXPECT_NEAR(static_cast<double>(account.total.bytes()), 67.9e9, 0.1e9);
  for (const AccountRow& row : account.rows)  // gradients of shortcuts are added to by the convolutions
    EXPECT_NE(row.kernel, "add_into") << row.layer;
  // 4.09 G multiply-adds forward, three times that with backward, without the images' gradient.
  EXPECT_NEAR(static_cast<double>(account.total.flops) / 256, 24.3e9, 0.3e9);
}

// Products alone make an iteration of Muon, and each norm is one with its pooling.
TEST(StepAccount, OfCifarNet) {
  StepPlan plan = small_step("cifarnet", 2000, Precision::f16);
  plan.optimizer = OptimizerKind::muon;
  detail::fill_fresh_memory = false;
  EXPECT_EQ(account_for_step(plan, gpu_named("h200")).total.launches, 172);
  detail::fill_fresh_memory = true;
}

}  // namespace athanor::account_test
