#include <cmath>

#include "autograd/engine.h"
#include "autograd/loss.h"
#include "bench/support/bench.h"
#include "kernels/cpu/context.h"
#include "kernels/loss.h"

namespace athanor::bench {
namespace {

struct Rows {
  Tensor x, target, stats, losses, y, dx, dy;

  Rows(std::int64_t n, std::int64_t classes, DType dtype)
      : x(filled({n, classes}, dtype, -3, 3)),
        target(Tensor::empty({n}, {DType::i64, kCpu})),
        stats(Tensor::empty({n, 2})),
        losses(Tensor::empty({n})),
        y(Tensor::empty({})),
        dx(empty_like(x)),
        dy(Tensor::from(std::vector<float>{1}, {})) {
    for (std::int64_t i = 0; i < n; ++i) target.data<std::int64_t>()[i] = 7 * i % classes;
  }
  void forward() const {
    kernels::cross_entropy_forward(cpu_context(), x, target, 0.1, 1.0 / static_cast<double>(x.dim(0)), stats,
                                   losses, y);
  }
  void backward() const {
    kernels::cross_entropy_backward(cpu_context(), x, target, stats, 0.1, 1.0 / static_cast<double>(x.dim(0)),
                                    dy, dx);
  }
};

// The loss and its gradient in double.
std::pair<double, std::vector<double>> reference(const Rows& rows) {
  const std::vector<double> x = rows.x.to_vector();
  const auto n = static_cast<std::size_t>(rows.x.dim(0)), classes = static_cast<std::size_t>(rows.x.dim(1));
  std::vector<double> gradient(x.size());
  double loss = 0;
  for (std::size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::size_t c = 0; c < classes; ++c) sum += std::exp(x[i * classes + c]);
    for (std::size_t c = 0; c < classes; ++c) {
      const bool on = static_cast<std::int64_t>(c) == rows.target.data<std::int64_t>()[i];
      const double q = 0.1 / static_cast<double>(classes) + (on ? 0.9 : 0.0);
      loss += q * (std::log(sum) - x[i * classes + c]) / static_cast<double>(n);
      gradient[i * classes + c] = (std::exp(x[i * classes + c]) / sum - q) / static_cast<double>(n);
    }
  }
  return {loss, gradient};
}

void add_cross_entropy(std::int64_t n, std::int64_t classes, DType dtype) {
  const std::string shape = shape_name({n, classes});
  const double bytes = static_cast<double>(n * classes) * static_cast<double>(size_of(dtype));
  add({"cross_entropy", "fwd", dtype, shape}, {.bytes = bytes}, [=] {
    const Rows rows(n, classes, dtype);
    rows.forward();
    return Prepared{[=] { rows.forward(); }, std::abs(rows.y.item() - reference(rows).first), 1e-5};
  });
  add({"cross_entropy", "bwd", dtype, shape}, {.bytes = 2 * bytes}, [=] {
    const Rows rows(n, classes, dtype);
    rows.forward();
    rows.backward();
    return Prepared{[=] { rows.backward(); }, max_error(rows.dx, reference(rows).second),
                    1e-6 + epsilon_of(dtype) / static_cast<double>(n)};
  });
  add({"cross_entropy", "step", dtype, shape, "autograd"}, {}, [=] {
    const Rows rows(n, classes, dtype);
    require_grad(rows.x);
    return Prepared{[=] {
      zero_grad(rows.x);
      backward(cross_entropy(rows.x, rows.target, 0.1f));
    }};
  });
}

}  // namespace

void register_all() {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const std::int64_t classes : {10, 100, 1000}) add_cross_entropy(128, classes, dtype);
  }
}

}  // namespace athanor::bench
