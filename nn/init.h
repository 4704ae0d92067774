#pragma once  // Explained in docs/initialisation.md.

#include <cmath>
#include <cstdint>
#include <functional>
#include <string_view>

#include "tensor/philox.h"
#include "tensor/tensor.h"

// Initial values of parameters. All functions overwrite `w`, a dense floating tensor on any device, draw on
// the host from a counter-based stream, and are not recorded: value i is a function of (key, i). Convolution
// weights are [K, R, S, C / groups], linear ones [N, K].

namespace athanor::nn {

/// Writes initial values to w.
using Init = std::function<void(const Tensor& w, RandomKey key)>;

/// The random stream of the parameter with that name. It depends on seed and name alone, so adding a layer
/// changes no other layer's values.
RandomKey parameter_key(std::uint64_t seed, std::string_view name);

namespace init {

/// Fan-in and fan-out. Rank 2 is [out, in]; for higher ranks both are multiplied by the receptive field, the
/// axes between the first (out) and the last (in).
struct Fans {
  std::int64_t in = 1, out = 1;
};
/// Throws ArgumentError below rank 2.
Fans fans(const Shape& shape);

/// Which fan an initialisation divides by: that of the inputs, or of the outputs.
enum class Fan : std::uint8_t { in, out };

/// sqrt(2): keeps the variance through a ReLU.
inline constexpr double kReluGain = 1.41421356237309505;
/// sqrt(2 / (1 + slope^2)): keeps the variance through a leaky ReLU.
inline double leaky_relu_gain(double slope) {
  return std::sqrt(2 / (1 + slope * slope));
}

/// Every element is `value`.
void constant(const Tensor& w, double value);
/// Zeros, as an Init.
void zeros(const Tensor& w, RandomKey key = {});
/// Uniform in [low, high), then rounded to the dtype of w, possibly to `high` itself.
void uniform(const Tensor& w, RandomKey key, double low, double high);
void normal(const Tensor& w, RandomKey key, double mean, double stddev);
/// Normal, redrawn until inside [low, high]. Throws ArgumentError if that interval holds under 1 % of the
/// normal distribution.
void truncated_normal(const Tensor& w, RandomKey key, double mean, double stddev, double low, double high);

/// Uniform with standard deviation gain / sqrt(fan). Source: He et al. 2015, arXiv:1502.01852, section 2.2.
void kaiming_uniform(const Tensor& w, RandomKey key, double gain = kReluGain, Fan fan = Fan::in);
void kaiming_normal(const Tensor& w, RandomKey key, double gain = kReluGain, Fan fan = Fan::in);
/// kaiming_normal() by the outputs, as an Init: that of most convolutions in torchvision.
inline void kaiming_fan_out(const Tensor& w, RandomKey key) {
  kaiming_normal(w, key, kReluGain, Fan::out);
}
/// Uniform with standard deviation gain sqrt(2 / (fan in + fan out)). Source: Glorot and Bengio 2010, eq. 16.
void xavier_uniform(const Tensor& w, RandomKey key, double gain = 1);
void xavier_normal(const Tensor& w, RandomKey key, double gain = 1);

/// Filter k < channels becomes the identity on channel k (a one in the middle). The others keep their values
/// with `keep_rest`, else become zero. Source: Zagoruyko and Komodakis 2017, arXiv:1706.00388.
void dirac(const Tensor& w, bool keep_rest = false);

/// Orthonormal rows (or columns, if there are fewer) of w viewed as [first axis, the others], times gain;
/// uniformly distributed. Source: Saxe, McClelland and Ganguli 2014, arXiv:1312.6120.
void orthogonal(const Tensor& w, RandomKey key, double gain = 1);

}  // namespace init
}  // namespace athanor::nn
