#pragma once

#include "kernels/copy.h"
#include "kernels/on_device.h"
#include "tensor/tensor.h"

namespace athanor {

/// x itself if it is dense, else a dense copy outside the graph: for kernels that need contiguous rows.
inline Tensor dense(const Tensor& x) {
  if (x.is_contiguous()) return x;
  const Tensor y = empty_like(x);
  on_device(x.device(), [&](auto& context) { kernels::copy(context, x, y); });
  return y;
}

/// A scalar in the precision of ops on x: unchanged for f64, rounded to f32 for every other dtype.
inline double rounded(double value, const Tensor& x) {
  return x.dtype() == DType::f64 ? value : static_cast<double>(static_cast<float>(value));
}
/// What losses, and the statistics of norms, are in.
inline DType wide_dtype(const Tensor& x) {
  return x.dtype() == DType::f64 ? DType::f64 : DType::f32;
}

inline void check_floating(const char* op, const Tensor& x) {
  ATH_CHECK(x.defined() && is_floating(x.dtype()), "{}: tensor must be floating, but got {}", op,
            x.defined() ? name_of(x.dtype()) : "an undefined tensor");
}

/// A hint how to give x that dtype and device: "; write cast(x, DType::f32)". Empty if it has them.
inline std::string cast_hint(const char* name, const Tensor& x, DType dtype, Device device) {
  const std::string type = dtype == DType::boolean ? "boolean" : std::string(name_of(dtype));
  std::string what = x.dtype() == dtype ? "" : fmt::format("; write cast({}, DType::{})", name, type);
  if (x.device() != device)
    what +=
        fmt::format("{} {}.to(Device::parse(\"{}\"))", what.empty() ? "; write" : " and", name, device.str());
  return what;
}
/// The hint for two operands that must share a dtype: that of a floating one, the first if both are floating.
/// `floating`: two integers of one dtype are not accepted either.
inline std::string cast_hint(const char* a_name, const Tensor& a, const char* b_name, const Tensor& b,
                             bool floating = true) {
  const bool neither = !is_floating(a.dtype()) && !is_floating(b.dtype());
  const DType dtype = neither && floating                 ? DType::f32
                      : neither || is_floating(a.dtype()) ? a.dtype()
                                                          : b.dtype();
  return cast_hint(a_name, a, dtype, a.device()) + cast_hint(b_name, b, dtype, a.device());
}

/// Throws ArgumentError unless a and b have one dtype, a floating one if `floating`, and one device. `rule`
/// says so: "both tensors must have one dtype and device".
inline void check_alike(const char* op, const char* rule, const Tensor& a, const Tensor& b, bool floating,
                        const char* a_name = "a", const char* b_name = "b") {
  ATH_CHECK(a.dtype() == b.dtype() && (!floating || is_floating(a.dtype())) && a.device() == b.device(),
            "{}: {}, but got {} on {} and {} on {}{}", op, rule, a.dtype(), a.device().str(), b.dtype(),
            b.device().str(), cast_hint(a_name, a, b_name, b, floating));
}

/// Throws ArgumentError if a parameter is not as the kernels need it.
inline void check_dense(const char* op, const char* name, const Tensor& p, DType dtype, const Shape& shape,
                        Device device) {
  ATH_CHECK(p.dtype() == dtype && p.shape() == shape && p.device() == device && p.is_contiguous(),
            "{}: {} must be dense {} {} on {}, but is {} {} on {}{}{}", op, name, dtype, shape, device.str(),
            p.dtype(), p.shape(), p.device().str(), p.is_contiguous() ? "" : ", with strides",
            cast_hint(name, p, dtype, device));
}

}  // namespace athanor
