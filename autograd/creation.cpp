#include "autograd/creation.h"

#include <cmath>

#include "autograd/node.h"
#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "kernels/random.h"

namespace athanor {
namespace {

// Makes a tensor and has `fill(context, tensor)` write it.
template <class Fill>
Tensor made(const char* op, const Shape& shape, const TensorOptions& options, const Fill& fill) {
  const Tensor y = Tensor::empty(shape, options);
  on_device(y.device(), [&](auto& context) { fill(context, y); });
  if (inference_mode()) y.mark_inference(op);
  return y;
}

void check_floating(const char* op, const TensorOptions& options) {
  ATH_CHECK(is_floating(options.dtype), "{}: dtype must be floating, but is {}", op, options.dtype);
}

// Every integer of [low, high) must be exact in the dtype.
void check_holds(std::int64_t low, std::int64_t high, DType dtype) {
  std::int64_t least = 0, most = 0;
  switch (dtype) {
    case DType::i64: return;
    case DType::i32: least = INT32_MIN, most = INT32_MAX; break;
    case DType::u8: most = UINT8_MAX; break;
    case DType::i8: least = INT8_MIN, most = INT8_MAX; break;
    case DType::boolean: most = 1; break;
    case DType::f64: most = std::int64_t{1} << 53, least = -most; break;
    case DType::f32: most = 1 << 24, least = -most; break;
    case DType::f16: most = 1 << 11, least = -most; break;
    case DType::bf16: most = 1 << 8, least = -most; break;
  }
  ATH_CHECK(low >= least && high - 1 <= most, "randint: {} holds [{}, {}], but got [{}, {})", dtype, least,
            most, low, high);
}

}  // namespace

Tensor ones(const Shape& shape, TensorOptions options) {
  return full(shape, 1, options);
}

Tensor full(const Shape& shape, double value, TensorOptions options) {
  return made("full", shape, options,
              [&](auto& context, const Tensor& y) { kernels::fill(context, y, value); });
}

Tensor arange(double start, double end, double step, TensorOptions options) {
  ATH_CHECK(step != 0 && std::isfinite(start) && std::isfinite(end) && std::isfinite(step),
            "arange: bounds must be finite and step not 0, but got {}, {}, {}", start, end, step);
  const double count = std::ceil((end - start) / step);
  ATH_CHECK(count < 0x1p53, "arange: must have fewer than 2^53 elements, but got {}, {}, {}", start, end,
            step);
  return made("arange", {count > 0 ? static_cast<std::int64_t>(count) : 0}, options,
              [&](auto& context, const Tensor& y) { kernels::arange(context, start, step, y); });
}

Tensor eye(std::int64_t n, TensorOptions options) {
  return made("eye", {n, n}, options, [](auto& context, const Tensor& y) { kernels::eye(context, y); });
}

Tensor rand(const Shape& shape, RandomKey key, double low, double high, TensorOptions options) {
  check_floating("rand", options);
  ATH_CHECK(low < high && std::isfinite(high - low), "rand: low must be below high, but got [{}, {})", low,
            high);
  return made("rand", shape, options,
              [&](auto& context, const Tensor& y) { kernels::random_uniform(context, key, low, high, y); });
}

Tensor randn(const Shape& shape, RandomKey key, double mean, double stddev, TensorOptions options) {
  check_floating("randn", options);
  ATH_CHECK(stddev >= 0, "randn: standard deviation must be >= 0, but got {}", stddev);
  return made("randn", shape, options,
              [&](auto& context, const Tensor& y) { kernels::random_normal(context, key, mean, stddev, y); });
}

Tensor randint(const Shape& shape, RandomKey key, std::int64_t low, std::int64_t high,
               TensorOptions options) {
  ATH_CHECK(low < high, "randint: low must be below high, but got [{}, {})", low, high);
  check_holds(low, high, options.dtype);
  return made("randint", shape, options,
              [&](auto& context, const Tensor& y) { kernels::random_integers(context, key, low, high, y); });
}

Tensor randperm(std::int64_t n, RandomKey key, Device device) {
  ATH_CHECK(n >= 0, "randperm: n must be >= 0, but got {}", n);
  const Tensor y = Tensor::from(philox_permutation(n, key), {n}, device);
  if (inference_mode()) y.mark_inference("randperm");
  return y;
}

}  // namespace athanor
