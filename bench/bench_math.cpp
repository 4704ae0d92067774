#include <cmath>

#include "bench/support/bench.h"
#include "kernels/cpu/isa.h"
#include "kernels/math.h"

// Our functions against the C library's, one thread, 4096 floats: what vector code is worth.

namespace athanor::bench {
namespace {

constexpr std::int64_t kCount = 4096;

template <class F>
void add_function(const char* op, const char* impl, double low, double high, const F& f,
                  double (*exact)(double)) {
  add({op, "fwd", DType::f32, std::to_string(kCount), impl}, {.bytes = 8.0 * kCount}, [=] {
    const Tensor x = filled({kCount}, DType::f32, low, high), y = empty_like(x);
    const auto run = [=] {
      const float* in = x.data<float>();
      float* out = y.data<float>();
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < kCount; ++i) out[i] = f(in[i]);
      });
    };
    run();
    std::vector<double> expected = x.to_vector();
    for (double& value : expected) value = exact(value);
    return Prepared{run, max_error(y, expected), 4 * epsilon_of(DType::f32)};
  });
}

}  // namespace

void register_all() {
#define ATH_PAIR(name, low, high)                                         \
  add_function(                                                           \
      #name, "athanor", low, high, [](float x) { return math::name(x); }, \
      [](double x) { return std::name(x); });                             \
  add_function(                                                           \
      #name, "std", low, high, [](float x) { return std::name(x); }, [](double x) { return std::name(x); });
  ATH_PAIR(exp, -10, 2)
  ATH_PAIR(log, 0.01, 10)
  ATH_PAIR(tanh, -3, 3)
  ATH_PAIR(erf, -3, 3)
#undef ATH_PAIR
}

}  // namespace athanor::bench
