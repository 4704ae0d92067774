#include "kernels/matmul.h"

#include "bench/cuda/families.h"
#include "bench/cuda/impls.h"
#include "bench/support/device_case.h"
#include "kernels/cuda/context.h"

namespace athanor::bench {
namespace {

Tensor transposed(const Tensor& x) {
  return x.view_as_strided({x.shape()[1], x.shape()[0]}, {x.strides()[1], x.strides()[0]}, 0);
}

template <class Context>
void multiply(Context& context, const Tensor& a, const Tensor& b, const Tensor& y,
              const Way<MatmulImpl>& way) {
  const auto run = [&](MatmulImpl impl) {
    kernels::matmul(context, impl, a, b, {}, Activation::none, y, Write::overwrite);
  };
  if constexpr (std::is_same_v<Context, CudaContext>) {
    const Tf32 allowed(context, way.tf32);
    run(way.impl);
  } else {
    run(MatmulImpl::automatic);
  }
}

// The three products of a layer of k inputs and n outputs. The small case has `rows` of the m rows, which are
// what grows: the gradient of the weights is their sum.
struct Layer {
  std::int64_t m, k, n, rows;
};

Call forward_call(const Layer& l, const Way<MatmulImpl>& way) {
  const Operand w = {pattern({l.n, l.k}, way.dtype, -1, 1, 2), Role::whole};
  return call({{pattern({l.rows, l.k}, way.dtype)}, w, result(Role::row_result, {l.rows, l.n}, way.dtype)},
              way.tolerance(), [way](auto& context, std::span<const Tensor> t) {
                multiply(context, t[0], transposed(t[1]), t[2], way);
              });
}
Call backward_data_call(const Layer& l, const Way<MatmulImpl>& way) {
  const Operand w = {pattern({l.n, l.k}, way.dtype, -1, 1, 2), Role::whole};
  return call({{pattern({l.rows, l.n}, way.dtype)}, w, result(Role::row_result, {l.rows, l.k}, way.dtype)},
              way.tolerance(),
              [way](auto& context, std::span<const Tensor> t) { multiply(context, t[0], t[1], t[2], way); });
}
Call backward_weights_call(const Layer& l, const Way<MatmulImpl>& way) {
  return call({{pattern({l.rows, l.n}, way.dtype)},
               {pattern({l.rows, l.k}, way.dtype, -1, 1, 2)},
               result(Role::sum_result, {l.n, l.k}, way.dtype)},
              way.tolerance(), [way](auto& context, std::span<const Tensor> t) {
                multiply(context, transposed(t[0]), t[1], t[2], way);
              });
}

using MakeCall = Call (*)(const Layer&, const Way<MatmulImpl>&);

void add_product(const char* dir, MakeCall make, const Layer& l, const Way<MatmulImpl>& way) {
  const std::int64_t tiles = l.m / l.rows;
  const double elements = static_cast<double>(l.m * l.k + l.k * l.n + l.m * l.n);
  const double flops = 2.0 * static_cast<double>(l.m) * static_cast<double>(l.k) * static_cast<double>(l.n);
  const double small = 1 / static_cast<double>(tiles);
  add({.op = "matmul",
       .dir = dir,
       .dtype = way.dtype,
       .shape = {l.rows, l.k, l.n},
       .work = {.bytes = small * elements * static_cast<double>(size_of(way.dtype)), .flops = small * flops},
       .prepare = [=] { return make(l, way); },
       .tiles = tiles,
       .impl = way.name(),
       .peak = way.peak()});
}

}  // namespace

void add_matmul() {
  const Layer emulated[] = {{64, 96, 80, 64}};
  const Layer real[] = {{1024, 1024, 1024, 64},  // square
                        {4096, 4096, 4096, 16},
                        {256, 2048, 1000, 64},   // the classifier of a ResNet-50
                        {8192, 768, 3072, 64}};  // half of a transformer's MLP
  const std::span<const Layer> layers = cuda_is_emulated() ? std::span<const Layer>(emulated) : real;
  for (const Layer& layer : layers) {
    for (const auto& way : ways<MatmulImpl>()) {
      add_product("fwd", forward_call, layer, way);
      add_product("bwd_data", backward_data_call, layer, way);
      add_product("bwd_weights", backward_weights_call, layer, way);
    }
  }
}

}  // namespace athanor::bench
