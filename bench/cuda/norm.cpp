#include "kernels/norm.h"

#include "bench/cuda/families.h"
#include "bench/support/device_case.h"
#include "kernels/cpu/context.h"

namespace athanor::bench {
namespace {

constexpr double kEps = 1e-5;

struct Variant {
  const char* op;
  Activation activation;
  bool residual;
  double backward;  // elements moved per element
};
constexpr Variant kVariants[] = {
    {"batch_norm", Activation::none, false, 5},
    {"batch_norm_relu", Activation::relu, false, 5},
    {"batch_norm_gelu", Activation::gelu, false, 5},
    {"batch_norm_add_relu", Activation::relu, true, 7},
};

// x, gamma, beta, stats and residual of a small batch, and what batch norm makes of them on the CPU.
struct Batch {
  Tensor x, gamma, beta, stats, residual, y;

  Batch(const Shape& shape, DType dtype, const Variant& v)
      : x(pattern(shape, dtype, -1, 3, 1)),
        gamma(filled({shape[1]}, DType::f32, 0.5, 1.5, 2)),
        beta(filled({shape[1]}, DType::f32, -0.5, 0.5, 3)),
        stats(Tensor::empty({2, shape[1]})),
        y(empty_like(x)) {
    if (v.residual) residual = pattern(shape, dtype, -1, 1, 4);
    kernels::batch_norm_statistics(cpu_context(), x, kEps, stats, {});
    kernels::batch_norm_forward(cpu_context(), v.activation, x, gamma, beta, stats, residual, y);
  }
};

void add_statistics(const Shape& shape, DType dtype) {
  add({.op = "batch_norm_stats",
       .dir = "fwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = bytes_of(shape, dtype)},
       .prepare =
           [=] {
             return call(
                 {{pattern(shape, dtype, -1, 3)}, result(Role::same_result, {2, shape[1]}, DType::f32)}, 1e-5,
                 [](auto& context, std::span<const Tensor> t) {
                   kernels::batch_norm_statistics(context, t[0], kEps, t[1], {});
                 });
           },
       .tiles = tiles_for(shape, dtype)});
}

void add_forward(const Shape& shape, DType dtype, const Variant& v) {
  add({.op = v.op,
       .dir = "fwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = (v.residual ? 3 : 2) * bytes_of(shape, dtype)},
       .prepare =
           [=] {
             const Batch b(shape, dtype, v);
             std::vector<Operand> operands = {{b.x},
                                              {b.gamma, Role::whole},
                                              {b.beta, Role::whole},
                                              {b.stats, Role::whole},
                                              result(Role::row_result, shape, dtype)};
             if (v.residual) operands.push_back({b.residual});
             return call(std::move(operands), 4 * epsilon_of(dtype) + 1e-6,
                         [v](auto& context, std::span<const Tensor> t) {
                           kernels::batch_norm_forward(context, v.activation, t[0], t[1], t[2], t[3],
                                                       v.residual ? t[5] : Tensor(), t[4]);
                         });
           },
       .tiles = tiles_for(shape, dtype)});
}

void add_backward(const Shape& shape, DType dtype, const Variant& v) {
  add({.op = v.op,
       .dir = "bwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = v.backward * bytes_of(shape, dtype)},
       .prepare =
           [=] {
             const Batch b(shape, dtype, v);
             const Shape channels = {shape[1]};
             std::vector<Operand> operands = {{b.x},
                                              {b.gamma, Role::whole},
                                              {b.beta, Role::whole},
                                              {b.stats, Role::whole},
                                              {pattern(shape, dtype, -1, 1, 5)},
                                              result(Role::row_result, shape, dtype),
                                              result(Role::sum_result, channels, DType::f32),
                                              result(Role::sum_result, channels, DType::f32)};
             if (v.residual) {
               operands.push_back({b.y});
               operands.push_back(result(Role::row_result, shape, dtype));
             }
             return call(std::move(operands), 8 * epsilon_of(dtype) + 1e-4,
                         [v](auto& context, std::span<const Tensor> t) {
                           kernels::BatchNormBackward args;
                           args.activation = v.activation;
                           args.x = t[0], args.gamma = t[1], args.beta = t[2], args.stats = t[3];
                           args.dy = t[4], args.dx = t[5], args.dgamma = {t[6]}, args.dbeta = {t[7]};
                           if (v.residual) args.extra = t[8], args.dresidual = t[9];
                           kernels::batch_norm_backward(context, args);
                         });
           },
       .tiles = tiles_for(shape, dtype)});
}

// Max pooling of a norm's result, or of what it takes, in training.

struct PooledNorm {
  const char* op;
  bool norm_first;
  Activation activation;
  Shape x, y;
  kernels::PoolWindows windows;
};
const PooledNorm kPooledNorms[] = {
    // The stem of a ResNet, and a group of CifarNet.
    {"batch_norm_max_pool",
     true,
     Activation::relu,
     {1, 112, 112, 64},
     {1, 56, 56, 64},
     {{112, 56, 3, 2, 1}, {112, 56, 3, 2, 1}}},
    {"max_pool_batch_norm",
     false,
     Activation::gelu,
     {1, 31, 31, 64},
     {1, 15, 15, 64},
     {{31, 15, 2, 2}, {31, 15, 2, 2}}},
};

/// args.y from x, with all that is in between: `pooled` if pooling comes first.
template <class Context>
void forward(Context& context, const PooledNorm& p, const Tensor& x, const Tensor& pooled,
             const Tensor& index, kernels::BatchNormTraining args) {
  args.activation = p.activation;
  args.eps = kEps;
  args.x = p.norm_first ? x : pooled;
  if constexpr (kernels::kHasNormPools<Context>) {
    if (p.norm_first) return kernels::batch_norm_max_pool_training(context, args, p.windows, index);
    kernels::max_pool_batch_norm_training(context, p.windows, x, index, args);
  } else {
    if (!p.norm_first) {
      kernels::max_pool_forward(context, p.windows, x, pooled, index);
      return kernels::batch_norm_training(context, args);
    }
    const Tensor y = args.y;
    args.y = empty_like(x);
    kernels::batch_norm_training(context, args);
    kernels::max_pool_forward(context, p.windows, args.y, y, index);
  }
}
/// dx, shaped like x, and the parameters' gradients from dy, shaped like y.
template <class Context>
void backward(Context& context, const PooledNorm& p, const Tensor& index, const Tensor& dx,
              kernels::BatchNormBackward args) {
  args.activation = p.activation;
  if constexpr (kernels::kHasNormPools<Context>) {
    args.dx = dx;
    if (p.norm_first) return kernels::batch_norm_max_pool_backward(context, args, p.windows, index);
    kernels::max_pool_batch_norm_backward(context, p.windows, index, args);
  } else if (p.norm_first) {
    const Tensor dy = args.dy;
    args.dx = dx;
    args.dy = empty_like(dx);
    kernels::max_pool_backward(context, p.windows, dy, index, args.dy);
    kernels::batch_norm_backward(context, args);
  } else {
    args.dx = empty_like(args.x);
    kernels::batch_norm_backward(context, args);
    kernels::max_pool_backward(context, p.windows, args.dx, index, dx);
  }
}

void add_pooled(const PooledNorm& p, DType dtype) {
  const Shape channels = {p.x[3]};
  const double x = bytes_of(p.x, dtype), y = bytes_of(p.y, dtype), index = bytes_of(p.y, DType::u8);
  const auto gamma = [=] { return filled(channels, DType::f32, 0.5, 1.5, 2); };
  const auto beta = [=] { return filled(channels, DType::f32, -0.5, 0.5, 3); };
  // Positions are operands, since a near tie may have another winner.
  add({.op = p.op,
       .dir = "fwd",
       .dtype = dtype,
       .shape = p.x,
       .work = {.bytes = (p.norm_first ? 2 * x + y : x + 3 * y) + index},
       .prepare =
           [=] {
             return call({{pattern(p.x, dtype, -1, 3, 1)},
                          {Tensor::empty(p.y, {dtype, kCpu})},
                          {Tensor::empty(p.y, {DType::u8, kCpu})},
                          {gamma(), Role::whole},
                          {beta(), Role::whole},
                          result(Role::same_result, {2, p.x[3]}, DType::f32),
                          result(Role::row_result, p.y, dtype)},
                         4 * epsilon_of(dtype) + 1e-4, [p](auto& context, std::span<const Tensor> t) {
                           kernels::BatchNormTraining args;
                           args.gamma = t[3], args.beta = t[4], args.stats = t[5], args.y = t[6];
                           forward(context, p, t[0], t[1], t[2], args);
                         });
           },
       .tiles = tiles_for(p.x, dtype)});
  add({.op = p.op,
       .dir = "bwd",
       .dtype = dtype,
       .shape = p.x,
       .work = {.bytes = p.norm_first ? 3 * x + 2 * (y + index) : x + 4 * y + index},
       .prepare =
           [=] {
             const Tensor in = pattern(p.x, dtype, -1, 3, 1), pooled = Tensor::empty(p.y, {dtype, kCpu}),
                          won = Tensor::empty(p.y, {DType::u8, kCpu});
             kernels::BatchNormTraining made;
             made.gamma = gamma(), made.beta = beta(), made.stats = Tensor::empty({2, p.x[3]});
             made.y = empty_like(pooled);
             forward(cpu_context(), p, in, pooled, won, made);
             return call({{p.norm_first ? in : pooled},
                          {won},
                          {made.gamma, Role::whole},
                          {made.beta, Role::whole},
                          {made.stats, Role::whole},
                          {pattern(p.y, dtype, -1, 1, 5)},
                          result(Role::row_result, p.x, dtype),
                          result(Role::sum_result, channels, DType::f32),
                          result(Role::sum_result, channels, DType::f32)},
                         8 * epsilon_of(dtype) + 1e-4, [p](auto& context, std::span<const Tensor> t) {
                           kernels::BatchNormBackward args;
                           args.x = t[0], args.gamma = t[2], args.beta = t[3], args.stats = t[4];
                           args.dy = t[5], args.dgamma = {t[7]}, args.dbeta = {t[8]};
                           backward(context, p, t[1], t[6], args);
                         });
           },
       .tiles = tiles_for(p.x, dtype)});
}

void add_layer_norm(const Shape& shape, DType dtype) {
  const double bytes = bytes_of(shape, dtype);
  const auto gamma = [=] { return Operand{filled({shape[1]}, DType::f32, 0.5, 1.5, 2), Role::whole}; };
  add({.op = "layer_norm",
       .dir = "fwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = 2 * bytes},
       .prepare =
           [=] {
             return call({{pattern(shape, dtype, -1, 3)},
                          gamma(),
                          gamma(),
                          result(Role::row_result, {shape[0], 2}, DType::f32),
                          result(Role::row_result, shape, dtype)},
                         4 * epsilon_of(dtype) + 1e-5, [](auto& context, std::span<const Tensor> t) {
                           kernels::layer_norm_forward(context, t[0], t[1], t[2], kEps, t[3], t[4]);
                         });
           },
       .tiles = tiles_for(shape, dtype)});
  add({.op = "layer_norm",
       .dir = "bwd",
       .dtype = dtype,
       .shape = shape,
       .work = {.bytes = 3 * bytes},
       .prepare =
           [=] {
             const Operand x = {pattern(shape, dtype, -1, 3)}, g = gamma();
             const Tensor stats = Tensor::empty({shape[0], 2}), y = empty_like(x.value);
             kernels::layer_norm_forward(cpu_context(), x.value, g.value, g.value, kEps, stats, y);
             return call({x,
                          g,
                          {stats},
                          {pattern(shape, dtype, -1, 1, 5)},
                          result(Role::row_result, shape, dtype),
                          result(Role::sum_result, {shape[1]}, DType::f32),
                          result(Role::sum_result, {shape[1]}, DType::f32)},
                         8 * epsilon_of(dtype) + 1e-4, [](auto& context, std::span<const Tensor> t) {
                           kernels::layer_norm_backward(context, t[0], t[1], t[2], t[3], t[4],
                                                        kernels::GradientTarget{t[5]},
                                                        kernels::GradientTarget{t[6]});
                         });
           },
       .tiles = tiles_for(shape, dtype)});
}

}  // namespace

void add_norm() {
  for (const DType dtype : bench_dtypes()) {
    for (const Shape& shape : {Shape{1024, 64}, Shape{256, 256}, Shape{64, 2048}}) {
      add_statistics(shape, dtype);
      for (const Variant& v : kVariants) {
        add_forward(shape, dtype, v);
        add_backward(shape, dtype, v);
      }
    }
    for (const PooledNorm& p : kPooledNorms) add_pooled(p, dtype);
    for (const Shape& shape : {Shape{64, 768}, Shape{16, 4096}}) add_layer_norm(shape, dtype);
  }
}

}  // namespace athanor::bench
