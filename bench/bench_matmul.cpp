#include "bench/support/bench.h"
#include "kernels/cpu/context.h"
#include "kernels/matmul.h"

// Square products, and the fully connected layers of LeNet-5 and of an ImageNet classifier.

namespace athanor::bench {
namespace {

Tensor transposed(const Tensor& x) {
  return x.view_as_strided({x.shape()[1], x.shape()[0]}, {x.strides()[1], x.strides()[0]}, 0);
}

// y [m, n] = a [m, k] b [k, n]; `a_t`, `b_t`: the factor is the transpose of a dense matrix.
void add_case(const char* dir, std::int64_t m, std::int64_t k, std::int64_t n, bool a_t, bool b_t,
              DType dtype, MatmulImpl impl) {
  const double size = static_cast<double>(size_of(dtype));
  const double bytes = static_cast<double>(m * k + k * n + m * n) * size;
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  add({"matmul", dir, dtype, shape_name({m, k, n}), std::string(name_of(impl))},
      {.bytes = bytes, .flops = flops}, [=] {
        const Tensor a = a_t ? transposed(filled({k, m}, dtype, -1, 1, 1)) : filled({m, k}, dtype, -1, 1, 1);
        const Tensor b = b_t ? transposed(filled({n, k}, dtype, -1, 1, 2)) : filled({k, n}, dtype, -1, 1, 2);
        const Tensor y = Tensor::empty({m, n}, {dtype}), expected = Tensor::empty({m, n}, {dtype});
        const auto run = [=](MatmulImpl how, const Tensor& to) {
          kernels::matmul(cpu_context(), how, a, b, {}, Activation::none, to, Write::overwrite);
        };
        run(impl, y);
        run(MatmulImpl::reference, expected);
        return Prepared{[=] { run(impl, y); }, max_error(y, expected), 16 * epsilon_of(dtype) + 1e-4};
      });
}

// The three products of a layer of k inputs and n outputs on m rows.
void add_linear(std::int64_t m, std::int64_t k, std::int64_t n, DType dtype, MatmulImpl impl) {
  add_case("fwd", m, k, n, false, true, dtype, impl);
  add_case("bwd_data", m, n, k, false, false, dtype, impl);
  add_case("bwd_weights", n, m, k, true, false, dtype, impl);
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const MatmulImpl impl : {MatmulImpl::automatic, MatmulImpl::reference, MatmulImpl::vendor}) {
      for (const std::int64_t n : {512, 1024, 2048}) add_case("fwd", n, n, n, false, false, dtype, impl);
      add_linear(64, 400, 120, dtype, impl);
      add_linear(64, 120, 84, dtype, impl);
      add_linear(64, 84, 10, dtype, impl);
      add_linear(64, 512, 1000, dtype, impl);
    }
  }
}

}  // namespace athanor::bench
