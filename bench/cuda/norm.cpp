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
    for (const Shape& shape : {Shape{64, 768}, Shape{16, 4096}}) add_layer_norm(shape, dtype);
  }
}

}  // namespace athanor::bench
