// The account (kernels/account/) against what the emulator counts of the same calls: launches, and in the
// race build, which sees every access, distinct bytes of memory.
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "autograd/conv.h"
#include "autograd/detail/conv_norm_parts.h"
#include "autograd/dropout.h"
#include "autograd/elementwise.h"
#include "autograd/engine.h"
#include "autograd/loss.h"
#include "autograd/matmul.h"
#include "autograd/norm.h"
#include "autograd/pool.h"
#include "autograd/reduce.h"
#include "autograd/scalar_ops.h"
#include "autograd/shape.h"
#include "autograd/softmax.h"
#include "kernels/cuda/autotune.h"
#include "kernels/cuda/norm_plan.h"
#include "kernels/cuda/reduce_plan.h"
#include "kernels/int8.h"
#include "kernels/int8_weights.h"
#include "kernels/metrics.h"
#include "kernels/muon.h"
#include "kernels/on_device.h"
#include "kernels/resize.h"
#include "nn/models/model.h"
#include "optim/adam.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "optim/step.h"
#include "simt/emulator/counters.h"
#include "simt/emulator/executor.h"
#include "tests/cuda/device.h"

namespace athanor::account_test {

using AccountOnDevice = test::DeviceTest;

struct Sums {
  std::int64_t launches = 0, read = 0, written = 0;
  bool operator==(const Sums&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Sums& sums) {
  return out << sums.launches << " launches, " << sums.read << " bytes read, " << sums.written << " written";
}
using ByKernel = std::map<std::string, Sums>;

/// What is run on a device: made there once, then called.
using Make = std::function<std::function<void()>(Device)>;

ByKernel accounted(const Make& make) {
  ByKernel sums;
  bool counts = false;
  AccountContext context([&](const KernelCost& cost) {
    if (!counts) return;
    EXPECT_FALSE(cost.assumed);
    Sums& of = sums[cost.kernel];
    ++of.launches, of.read += cost.bytes_read, of.written += cost.bytes_written;
  });
  context.vendor = false;
  context.multiprocessors = device_info(test::device()).multiprocessors;
  const auto run = make(kCpu);
  const AccountScope scope(context);
  run();
  counts = true;
  run();
  return sums;
}

ByKernel counted(const Make& make) {
  const auto run = make(test::device());
  run();
  synchronize(test::device());
  simt::start_counting();
  run();
  synchronize(test::device());
  ByKernel sums;
  for (const simt::KernelCounts& kernel : simt::stop_counting().kernels)
    sums[kernel.name] = {static_cast<std::int64_t>(kernel.launches),
                         static_cast<std::int64_t>(kernel.bytes_read),
                         static_cast<std::int64_t>(kernel.bytes_written)};
  return sums;
}

std::int64_t launches_of(const Make& make) {
  const auto run = make(test::device());
  run();
  synchronize(test::device());
  const std::uint64_t before = simt::executor_stats().launches;
  run();
  synchronize(test::device());
  return static_cast<std::int64_t>(simt::executor_stats().launches - before);
}

void expect_equal(const std::string& what, const Make& make) {
  SCOPED_TRACE(what);
  const ByKernel said = accounted(make);
  if (!simt::can_count()) {
    std::int64_t launches = 0;
    for (const auto& [kernel, sums] : said) launches += sums.launches;
    EXPECT_EQ(launches, launches_of(make));
    return;
  }
  const ByKernel found = counted(make);
  for (const auto& [kernel, sums] : found) {
    const auto at = said.find(kernel);
    EXPECT_EQ(at == said.end() ? Sums() : at->second, sums) << kernel;
  }
  for (const auto& [kernel, sums] : said) EXPECT_TRUE(found.contains(kernel)) << kernel << " did not run";
}

/// An op of tensors of these shapes, the last `parameters` of them f32, and its backward pass to those that
/// are not frozen, a bit each.
using Op = std::function<Tensor(const std::vector<Tensor>&)>;

Make both_passes(DType dtype, std::vector<Shape> shapes, const Op& op, std::size_t parameters = 0,
                 unsigned frozen = 0) {
  return [=](Device device) {
    std::vector<Tensor> inputs, leaves;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      const bool parameter = i + parameters >= shapes.size();
      inputs.push_back(Tensor::zeros(shapes[i], {parameter ? DType::f32 : dtype, device}));
      if ((frozen >> i & 1u) != 0) continue;
      require_grad(inputs.back());
      leaves.push_back(inputs.back());
    }
    return [=] {
      for (const Tensor& leaf : leaves) leaf_of(leaf).zero();
      const Tensor y = op(inputs);
      backward(y, Tensor::zeros(y.shape(), y.options()));
    };
  };
}

/// The sizes up to `most`, in steps, between which a plan changes: the last of one variant and the first of
/// the next.
template <class Variant>
std::vector<std::int64_t> boundaries(std::int64_t step, std::int64_t most, const Variant& variant) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t n = step; n < most; n += step) {
    if (variant(n) != variant(n + step)) sizes.insert(sizes.end(), {n, n + step});
  }
  return sizes;
}
int width_of(DType dtype) {
  return static_cast<int>(16 / size_of(dtype));
}

// Two sizes: one that divides by vectors, and one that does not.
TEST_F(AccountOnDevice, Elementwise) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const std::int64_t n : {64, 1003}) {
      const auto run = [&](const char* name, std::vector<Shape> shapes, const Op& op) {
        expect_equal(fmt::format("{} {} of {}", name, dtype, n), both_passes(dtype, shapes, op));
      };
      run("relu", {{n}}, [](const auto& x) { return relu(x[0]); });
      run("gelu", {{n}}, [](const auto& x) { return gelu(x[0]); });
      run("add", {{n}, {n}}, [](const auto& x) { return x[0] + x[1]; });
      run("product", {{n}, {n}}, [](const auto& x) { return x[0] * x[1]; });
      run("leaky_relu", {{n}}, [](const auto& x) { return leaky_relu(x[0], 0.1); });
      run("dropout", {{n}}, [](const auto& x) { return dropout(x[0], 0.5, true); });
      run("sum", {{n}}, [](const auto& x) { return sum(x[0]); });
      run("broadcast", {{3, n}, {n}}, [](const auto& x) { return x[0] + x[1]; });
      run("softmax", {{7, n}}, [](const auto& x) { return softmax(x[0]); });
      run("transpose", {{20, n}}, [](const auto& x) { return contiguous(transpose(x[0], 0, 1)); });
    }
  }
}

TEST_F(AccountOnDevice, Convolutions) {
  struct Case {
    const char* name;
    Shape x, w;
    Conv2dParams params;
    bool bias;
  };
  const Case cases[] = {
      {"3 x 3", {2, 9, 8, 16}, {24, 3, 3, 16}, {.padding = {1, 1}}, false},
      {"3 x 3 by 2", {2, 9, 8, 5}, {7, 3, 3, 5}, {.stride = {2, 2}, .padding = {1, 1}}, true},
      {"1 x 1", {2, 8, 8, 16}, {32, 1, 1, 16}, {}, false},
      {"1 x 1 by 2", {2, 8, 8, 16}, {32, 1, 1, 16}, {.stride = {2, 2}}, false},
      {"deep", {4, 16, 16, 8}, {8, 3, 3, 8}, {.padding = {1, 1}}, false},
      {"depthwise", {2, 9, 8, 16}, {16, 3, 3, 1}, {.padding = {1, 1}, .groups = 16}, true},
  };
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const Case& z : cases) {
      std::vector<Shape> shapes{z.x, z.w};
      if (z.bias) shapes.push_back({z.w[0]});
      expect_equal(fmt::format("conv2d {} {}", z.name, dtype), both_passes(dtype, shapes, [&](const auto& x) {
                     return conv2d(x[0], x[1], z.bias ? x[2] : Tensor(), z.params);
                   }));
    }
  }
}

// Of kernels alone: as a product, whose depth is cut or not, and depthwise.
TEST_F(AccountOnDevice, ConvolutionsOfBytes) {
  struct Case {
    const char* name;
    Shape x, w;
    Conv2dParams params;
  };
  for (const Case& z : {Case{"3 x 3", {2, 9, 8, 16}, {24, 3, 3, 16}, {.padding = {1, 1}}},
                        {"1 x 1", {2, 8, 8, 5}, {32, 1, 1, 5}, {}},
                        {"deep", {1, 4, 4, 192}, {16, 3, 3, 192}, {.padding = {1, 1}}},
                        {"depthwise", {2, 9, 8, 16}, {16, 3, 3, 1}, {.padding = {1, 1}, .groups = 16}}}) {
    for (const bool adds : {false, true}) {
      expect_equal(z.name, [=](Device device) {
        const TensorOptions bytes{DType::u8, device};
        const Shape shape = conv2d_shape(z.x, z.w, z.params);
        const Tensor x = Tensor::zeros(z.x, bytes), y = Tensor::zeros(shape, bytes);
        const kernels::Int8Residual residual{adds ? Tensor::zeros(shape, bytes) : Tensor(), 1, 0};
        const auto w = std::make_shared<kernels::Int8Weights>(Tensor::zeros(z.w, {DType::i8, device}),
                                                              Tensor::zeros({z.w[0]}, {DType::f32, device}),
                                                              Tensor::zeros({z.w[0]}, {DType::i32, device}));
        const auto run = [=](auto& context) {
          kernels::conv2d_int8(context, z.params, x, 0, *w, residual, {}, y);
        };
        return [=] { device.is_cpu() ? run(*detail::account) : run(cuda_context(device)); };
      });
    }
  }
}

TEST_F(AccountOnDevice, Products) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    const auto run = [&](const char* name, std::vector<Shape> shapes, const Op& op) {
      expect_equal(fmt::format("{} {}", name, dtype), both_passes(dtype, shapes, op));
    };
    const Op product = [](const auto& x) { return matmul(x[0], x[1]); };
    const Op layer = [](const auto& x) { return linear(x[0], x[1], x[2]); };
    run("matmul", {{40, 24}, {24, 56}}, product);
    run("matmul of few rows", {{3, 50}, {50, 33}}, product);
    run("batch", {{2, 3, 8, 16}, {2, 3, 16, 8}}, product);
    run("linear", {{8, 64}, {10, 64}, {10}}, layer);
    run("deep linear", {{300, 33}, {5, 33}, {5}}, layer);
  }
}

// Wide and tall matrices; of the second shape, the depth of the first product is cut.
TEST_F(AccountOnDevice, IterationsOfNewtonAndSchulz) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const Shape& shape : {Shape{2, 16, 40}, {1, 16, 2000}, {3, 24, 8}}) {
      expect_equal(fmt::format("{} {}", dtype, shape), [=](Device device) {
        const std::int64_t n = std::min(shape[1], shape[2]);
        const Tensor x = Tensor::zeros(shape, {dtype, device}), next = empty_like(x),
                     gram = Tensor::empty({shape[0], n, n}, x.options()), factor = empty_like(gram);
        return [=] {
          on_device(device, [&](auto& context) {
            kernels::newton_schulz(context, x, {3, -4, 2}, gram, factor, next);
          });
        };
      });
    }
  }
}

// Where one block has all rows of a sum, and where two share them.
TEST_F(AccountOnDevice, SumsAtTheBoundariesOfTheirPlans) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const std::int64_t columns : {1, 5, 8}) {
      const auto sizes = boundaries(1, columns == 1 ? 20000 : 4096, [&](std::int64_t n) {
        const TensorOptions options{dtype, kCpu};
        return cuda::reduce_partial_sums(Tensor::empty({n, columns}, options),
                                         Tensor::empty({1, columns}, options)) > 0;
      });
      ASSERT_FALSE(sizes.empty());
      for (const std::int64_t n : sizes)
        expect_equal(fmt::format("sum of {} rows of {} {}", n, columns, dtype),
                     both_passes(dtype, {{n, columns}}, [](const auto& x) { return sum(x[0], {0}); }));
    }
    const auto sizes =
        boundaries(1, 10000, [&](std::int64_t n) { return cuda::total_blocks(n, size_of(dtype)) == 1; });
    ASSERT_EQ(sizes.size(), 2u);
    for (const std::int64_t n : sizes)
      expect_equal(fmt::format("mse_loss of {} {}", n, dtype),
                   both_passes(dtype, {{n}, {n}}, [](const auto& x) { return mse_loss(x[0], x[1]); }));
  }
}

TEST_F(AccountOnDevice, BatchNorms) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    std::vector<Shape> shapes{{2, 9, 8, 16}, {3, 5, 5, 6}};
    const auto rows = boundaries(1, 3000, [&](std::int64_t n) {
      return cuda::norm_cut(Tensor::empty({n, 16}, {dtype, kCpu}), width_of(dtype)).splits == 1;
    });
    ASSERT_EQ(rows.size(), 2u);
    for (const std::int64_t n : rows) shapes.push_back({n, 16});
    for (const Shape& shape : shapes) {
      const Shape c{shape[shape.rank() - 1]};
      for (const bool residual : {false, true}) {
        const Op op = [=](const std::vector<Tensor>& in) {
          return batch_norm(in[0], in[2], in[3], in[4], in[5], true, {.activation = Activation::relu},
                            residual ? in[1] : Tensor());
        };
        const unsigned frozen = residual ? 0x30u : 0x32u;  // the running statistics, and what is not there
        expect_equal(fmt::format("batch_norm {} {}{}", dtype, shape.str(), residual ? " + residual" : ""),
                     both_passes(dtype, {shape, shape, c, c, c, c}, op, 4, frozen));
      }
    }
  }
}

TEST_F(AccountOnDevice, PairsOfBatchNorms) {
  const Shape x{2, 9, 8, 16}, c{16};
  const Op op = [](const std::vector<Tensor>& in) {
    const BatchNormParams relu{.activation = Activation::relu}, none;
    return detail::batch_norm_pair({in[0], {}, {in[2], in[4], in[6], in[8], true, relu}},
                                   {in[1], {}, {in[3], in[5], in[7], in[9], true, none}});
  };
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const unsigned frozen : {0u, 1u, 0x14u})  // none; the first x; the first gamma and beta
      expect_equal(fmt::format("batch_norm_pair {} {}", dtype, frozen),
                   both_passes(dtype, {x, x, c, c, c, c, c, c, c, c}, op, 8, frozen | 0x3c0u));
  }
}

TEST_F(AccountOnDevice, BatchNormsBesidePools) {
  const Shape c{16};
  const BatchNormParams relu{.activation = Activation::relu}, gelu{.activation = Activation::gelu};
  const Pool2dParams stem{.window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, quarter;
  const Op norm_first = [=](const std::vector<Tensor>& in) {
    return detail::batch_norm_max_pool({in[0], {}, {in[1], in[2], in[3], in[4], true, relu}}, stem);
  };
  const Op pool_first = [=](const std::vector<Tensor>& in) {
    return detail::max_pool_batch_norm(in[0], quarter, {in[1], in[2], in[3], in[4], true, gelu});
  };
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const Shape& x : {Shape{2, 8, 8, 16}, Shape{3, 9, 7, 16}, Shape{4, 40, 40, 16}}) {
      for (const unsigned frozen : {0u, 1u, 6u}) {  // none; x; gamma and beta
        const auto run = [&](const char* name, const Op& op) {
          expect_equal(fmt::format("{} {} {}, frozen {}", name, dtype, x.str(), frozen),
                       both_passes(dtype, {x, c, c, c, c}, op, 4, frozen | 0x18u));
        };
        run("batch_norm_max_pool", norm_first);
        run("max_pool_batch_norm", pool_first);
      }
    }
  }
}

// Rows that a warp or a block keeps in one or more vectors a thread, or that none does; those off alignment.
TEST_F(AccountOnDevice, LayerNormsAtTheBoundariesOfTheirPlans) {
  const Op op = [](const std::vector<Tensor>& in) { return layer_norm(in[0], in[1], in[2]); };
  for (const DType dtype : {DType::f32, DType::f16}) {
    auto sizes = boundaries(width_of(dtype), 8192, [&](std::int64_t n) {
      const cuda::LayerNormPlan plan(size_of(dtype), n, {});
      return std::pair(plan.threads, plan.vectors);
    });
    ASSERT_EQ(sizes.size(), 8u);
    sizes.push_back(33);
    for (const std::int64_t size : sizes) {
      for (const unsigned frozen : {0u, 1u, 6u})  // none; x; gamma and beta
        expect_equal(fmt::format("layer_norm {} of {}, frozen {}", dtype, size, frozen),
                     both_passes(dtype, {{9, size}, {size}, {size}}, op, 2, frozen));
    }
  }
}

TEST_F(AccountOnDevice, GroupNorms) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    std::vector<Shape> shapes{{3, 5, 5, 16}, {2, 5, 5, 6}};
    const auto pixels = boundaries(1, 1500, [&](std::int64_t n) {
      const kernels::ChannelGroups z(Tensor::empty({2, n, 16}, {dtype, kCpu}), Tensor::empty({2, 2, 2}));
      return cuda::group_norm_cut(z, width_of(dtype)).splits == 1;
    });
    ASSERT_EQ(pixels.size(), 2u);
    for (const std::int64_t n : pixels) shapes.push_back({2, n, 16});
    for (const Shape& shape : shapes) {
      const Shape c{shape[shape.rank() - 1]};
      expect_equal(fmt::format("group_norm {} {}", dtype, shape.str()),
                   both_passes(
                       dtype, {shape, c, c},
                       [](const std::vector<Tensor>& in) { return group_norm(in[0], 2, in[1], in[2]); }, 2));
    }
  }
}

TEST_F(AccountOnDevice, ConvolutionsThatSumTheirChannels) {
  const std::pair<Shape, Shape> cases[] = {
      {{9, 16, 16, 16}, {16, 3, 3, 16}}, {{13, 9, 9, 32}, {72, 1, 1, 32}}, {{65, 16, 16, 8}, {136, 1, 1, 8}}};
  for (const auto& [x, w] : cases) {
    if (test::kChecksEveryAccess && x[0] > 20) continue;
    const Op op = [](const std::vector<Tensor>& in) {
      const Conv2dParams params{.padding = {in[1].dim(1) / 2, in[1].dim(2) / 2}};
      const Tensor none;
      return conv_norm(in[0], {in[1], none, params}, {none, none, none, none, true, {}});
    };
    expect_equal(fmt::format("conv_norm {} {}", x, w), both_passes(DType::f16, {x, w}, op));
  }
}

// Two of them, with a norm between and, as at the end of a block, a norm with a shortcut.
TEST_F(AccountOnDevice, ConvolutionsThatComputeTheNormBeforeThem) {
  const Shape x{9, 8, 8, 16}, c{16};
  for (const bool shortcut : {false, true}) {
    const Op op = [=](const std::vector<Tensor>& in) {
      const Conv2dParams params{.impl = ConvImpl::reference};
      const BatchNormParams relu{.activation = Activation::relu};
      const Tensor none;
      const NormArguments norm{in[3], in[4], none, none, true, relu};
      const DeferredNorm first = conv_norm_deferred(in[0], {in[1], none, params}, norm,
                                                    shortcut ? DeferredNorm(in[0]) : DeferredNorm());
      return conv_norm(first, {in[2], none, params}, norm, shortcut ? first : DeferredNorm());
    };
    expect_equal(fmt::format("deferred norm, shortcut {}", shortcut),
                 both_passes(DType::f16, {x, {16, 1, 1, 16}, {16, 1, 1, 16}, c, c}, op, 2));
  }
}

TEST_F(AccountOnDevice, Pools) {
  for (const DType dtype : {DType::f32, DType::f16}) {
    for (const std::int64_t side : {8, 9}) {
      for (const std::int64_t window : {2, 3}) {
        const Pool2dParams params{.window = {window, window}, .stride = {2, 2}};
        const std::string what = fmt::format("pool {} of {} {}", window, side, dtype);
        const Shape shape{2, side, side, 8};
        expect_equal("max " + what,
                     both_passes(dtype, {shape}, [=](const auto& x) { return max_pool2d(x[0], params); }));
        expect_equal("mean " + what,
                     both_passes(dtype, {shape}, [=](const auto& x) { return avg_pool2d(x[0], params); }));
      }
    }
  }
}

// Whole images, of which every byte is read.
TEST_F(AccountOnDevice, Resizing) {
  std::vector<kernels::StagedImage> images;
  for (const std::int32_t side : {8, 24, 40}) {
    const Window window{side / 18.0, 0, 0, side};
    images.push_back(
        {.at = 0, .height = side, .width = side, .channels = 3, .rows = window, .columns = window});
    if (images.size() > 1) {
      const kernels::StagedImage& last = images[images.size() - 2];
      images.back().at = last.at + std::int64_t{last.height} * last.width * last.channels;
    }
  }
  std::vector<std::uint8_t> described(images.size() * sizeof(kernels::StagedImage));
  std::memcpy(described.data(), images.data(), described.size());
  expect_equal("resize", [=](Device device) {
    const Tensor of = Tensor::from(described, {std::ssize(described)}).to(device);
    const Tensor pixels = Tensor::zeros({3 * (8 * 8 + 24 * 24 + 40 * 40)}, {DType::u8, device});
    const Tensor y = Tensor::zeros({3, 18, 18, 3}, {DType::u8, device});
    return [=] { on_device(device, [&](auto& context) { kernels::resize_images(context, of, pixels, y); }); };
  });
}

/// A step of a model as the trainer takes it, without data.
struct Training {
  Training(Device device, const char* name, const nn::ModelOptions& size, std::int64_t batch,
           Precision precision, const char* kind)
      : model(nn::make_model(name, size, 1)),
        arena(model->parameters(), model->buffers(), {.precision = precision, .device = device}),
        meter(arena),
        step(device),
        images(Tensor::zeros({batch, size.image_size, size.image_size, size.in_channels},
                             {compute_dtype(precision), device})),
        labels(Tensor::zeros({batch}, {DType::i64, device})),
        totals(Tensor::zeros({3}, {DType::f64, device})) {
    const std::string optimizer_kind = kind;
    if (optimizer_kind == "sgd") optimizer = std::make_unique<Sgd>(arena, SgdOptions{.momentum = 0.9f});
    if (optimizer_kind == "adamw") optimizer = std::make_unique<AdamW>(arena, AdamWOptions{});
    if (optimizer_kind == "muon")
      optimizer = std::make_unique<Muon>(arena, MuonOptions{.dtype = DType::bf16}, AdamWOptions{}, 0.1f);
  }
  void run() {
    on_device(step.device(), [](auto& context) { context.set_random_ops(0); });
    arena.buffers().snapshot();
    arena.zero_grad();
    const Tensor logits = (*model)(images);
    const CrossEntropy loss = cross_entropy_of_each(logits, labels, 0.1);
    on_device(step.device(), [&](auto& context) {
      kernels::add_metrics(context, loss.losses, logits.detach(), labels, totals);
    });
    backward_scaled(loss.mean, step);
    meter.measure(step, {.max_norm = 5});
    optimizer->set_learning_rates(step, schedules::constant(0.01));
    optimizer->step(step);
    arena.buffers().restore_if_skipped(step);
    finish_step(step, LossScaling::fixed(1));
  }

  std::unique_ptr<nn::Module> model;
  ParameterArena arena;
  GradientMeter meter;
  std::unique_ptr<Optimizer> optimizer;
  StepBuffer step;
  Tensor images, labels, totals;
};

void expect_step(const char* name, const nn::ModelOptions& size, std::int64_t batch, Precision precision,
                 const char* optimizer) {
  expect_equal(
      fmt::format("{} of {}, batch {}, {}, {}", name, size.image_size, batch, name_of(precision), optimizer),
      [=](Device device) {
        const auto training = std::make_shared<Training>(device, name, size, batch, precision, optimizer);
        return [training] { training->run(); };
      });
}

// Before each of nine runs: what they find in the cache is clean.
TEST_F(AccountOnDevice, AStopwatchFlushesTheCacheByReading) {
  if (!simt::can_count()) GTEST_SKIP() << "only the race build counts bytes";
  const std::uint64_t cache_bytes = device_info(test::device()).l2_bytes;
  cuda::Stopwatch watch(cuda_context(test::device()));
  simt::start_counting();
  watch.median_ms(0, [] {});
  synchronize(test::device());
  std::uint64_t read = 0, written = 0;
  for (const simt::KernelCounts& kernel : simt::stop_counting().kernels)
    read += kernel.bytes_read, written += kernel.bytes_written;
  EXPECT_GE(read, 9 * 2 * cache_bytes);
  EXPECT_LE(written, read / 10);
}

TEST_F(AccountOnDevice, Steps) {
  expect_step("digits_cnn", {10, 1, 8}, 4, Precision::f32, "sgd");
  expect_step("digits_cnn", {10, 1, 8}, 7, Precision::f16, "adamw");
  expect_step("resnet20", {10, 3, 8}, 2, Precision::f16, "sgd");
  if (!test::kChecksEveryAccess) expect_step("resnet20", {10, 3, 16}, 3, Precision::f32, "muon");
}

}  // namespace athanor::account_test
