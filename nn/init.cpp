#include "nn/init.h"

#include <algorithm>

#include "kernels/hash.h"
#include "nn/detail/fill.h"

namespace athanor::nn {

RandomKey parameter_key(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = kernels::fnv1a(name);
  hash = (hash ^ (hash >> 32)) * 0xd6e8feb86659fd93ull;  // spreads differences at the end of names
  return {seed, hash ^ (hash >> 32)};
}

namespace init {
namespace {

// Consecutive numbers of a stream, four per block.
class Uniforms {
 public:
  explicit Uniforms(RandomKey key) : key_(key) {}
  double operator()(std::uint64_t i) {
    if (i % 4 == 0) block_ = philox(key_, i / 4);
    return random_uniform(block_.word[i % 4]);
  }

 private:
  RandomKey key_;
  PhiloxBlock block_{};
};

class Normals {
 public:
  explicit Normals(RandomKey key) : key_(key) {}
  double operator()(std::uint64_t i) {
    if (i % 4 == 0) block_ = philox(key_, i / 4);
    if (i % 2 == 0) pair_ = random_normals(block_.word[i % 4], block_.word[i % 4 + 1]);
    return i % 2 == 0 ? pair_.first : pair_.second;
  }

 private:
  RandomKey key_;
  PhiloxBlock block_{};
  NormalPair pair_{};
};

double normal_cdf(double x) {
  return 0.5 * std::erfc(-x / std::sqrt(2.0));
}

double fan_of(const Tensor& w, Fan fan) {
  const Fans both = fans(w.shape());
  return static_cast<double>(std::max<std::int64_t>(fan == Fan::in ? both.in : both.out, 1));
}

double xavier_deviation(const Tensor& w, double gain) {
  const Fans both = fans(w.shape());
  return gain * std::sqrt(2.0 / static_cast<double>(std::max<std::int64_t>(both.in + both.out, 1)));
}

}  // namespace

Fans fans(const Shape& shape) {
  ATH_CHECK(shape.rank() >= 2, "init: fan-in and fan-out need a rank of at least 2, but got shape {}", shape);
  std::int64_t field = 1;
  for (int i = 1; i + 1 < shape.rank(); ++i) field *= shape[i];
  return {field * shape[shape.rank() - 1], field * shape[0]};
}

void constant(const Tensor& w, double value) {
  fill("constant", w, [value](std::uint64_t) { return value; });
}

void uniform(const Tensor& w, RandomKey key, double low, double high) {
  ATH_CHECK(low <= high, "uniform: low must not exceed high, but got {} and {}", low, high);
  fill("uniform", w,
       [&, draw = Uniforms(key)](std::uint64_t i) mutable { return low + (high - low) * draw(i); });
}

void normal(const Tensor& w, RandomKey key, double mean, double stddev) {
  ATH_CHECK(stddev >= 0, "normal: stddev must be >= 0, but got {}", stddev);
  fill("normal", w, [&, draw = Normals(key)](std::uint64_t i) mutable { return mean + stddev * draw(i); });
}

void truncated_normal(const Tensor& w, RandomKey key, double mean, double stddev, double low, double high) {
  ATH_CHECK(stddev > 0 && low < high,
            "truncated_normal: stddev must be > 0 and low < high, but got {}, {}, {}", stddev, low, high);
  const double share = normal_cdf((high - mean) / stddev) - normal_cdf((low - mean) / stddev);
  ATH_CHECK(
      share >= 0.01,
      "truncated_normal: [{}, {}] must contain at least 1 % of the normal distribution, but contains {} %",
      low, high, 100 * share);
  fill("truncated_normal", w, [&](std::uint64_t i) {
    for (std::uint64_t attempt = 0;; ++attempt) {  // a separate sub-stream for each element
      const PhiloxBlock block = philox(key, i + (attempt << 40));
      for (int pair = 0; pair < 4; pair += 2) {
        const NormalPair drawn = random_normals(block.word[pair], block.word[pair + 1]);
        for (const float z : {drawn.first, drawn.second}) {
          const double value = mean + stddev * z;
          if (value >= low && value <= high) return value;
        }
      }
    }
  });
}

void kaiming_uniform(const Tensor& w, RandomKey key, double gain, Fan fan) {
  const double bound = gain * std::sqrt(3 / fan_of(w, fan));
  uniform(w, key, -bound, bound);
}

void kaiming_normal(const Tensor& w, RandomKey key, double gain, Fan fan) {
  normal(w, key, 0, gain / std::sqrt(fan_of(w, fan)));
}

void xavier_uniform(const Tensor& w, RandomKey key, double gain) {
  const double bound = std::sqrt(3.0) * xavier_deviation(w, gain);
  uniform(w, key, -bound, bound);
}

void xavier_normal(const Tensor& w, RandomKey key, double gain) {
  normal(w, key, 0, xavier_deviation(w, gain));
}

void zeros(const Tensor& w, RandomKey) {
  constant(w, 0);
}

void dirac(const Tensor& w, bool keep_rest) {
  ATH_CHECK(w.rank() == 4, "dirac: weight must be [K, R, S, C], but has shape {}", w.shape());
  const Shape& shape = w.shape();
  const std::int64_t channels = shape[3], filter = shape[1] * shape[2] * channels;
  const std::int64_t middle = ((shape[1] / 2) * shape[2] + shape[2] / 2) * channels;
  const Tensor before = w.detach().to(kCpu);
  dispatch_floating(w.dtype(), "dirac", [&]<class T>() {
    const T* old = before.data<T>();
    fill("dirac", w, [&](std::uint64_t i) {
      const std::int64_t k = static_cast<std::int64_t>(i) / filter,
                         at = static_cast<std::int64_t>(i) % filter;
      if (k >= channels) return keep_rest ? static_cast<double>(static_cast<Accumulate<T>>(old[i])) : 0.0;
      return at == middle + k ? 1.0 : 0.0;
    });
  });
}

}  // namespace init
}  // namespace athanor::nn
