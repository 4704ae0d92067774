#include <algorithm>
#include <cmath>

#include "kernels/cpu/context.h"
#include "kernels/cpu/iterate.h"
#include "kernels/cpu/parameter_gradient.h"
#include "kernels/norm.h"
#include "kernels/norm_ops.h"
#include "kernels/scratch.h"

// Channels are contiguous: every loop runs over all channels of a pixel, with group values repeated per
// channel. Each chunk of pixels has its own sum, and chunks are added in order in double: the bits depend
// only on the shape.

namespace athanor::kernels {
namespace {

using cpu::kFastType;

constexpr std::int64_t kChunk = 16384;            // approximate elements of a chunk
constexpr std::int64_t kFewest = 16, kMax = 512;  // range of its pixels: larger sums would round more

/// The division of every image's pixels into chunks.
struct Chunks {
  std::int64_t share, of_image, all;

  explicit Chunks(const ChannelGroups& z)
      : share(std::clamp(kChunk / z.channels, kFewest, kMax)),
        of_image((z.pixels + share - 1) / share),
        all(z.images * of_image) {}

  /// Calls f(chunk, image, first element, pixels) for every chunk, in parallel.
  template <bool kFast, class F>
  void for_each(const CpuContext& context, const ChannelGroups& z, const F& f) const {
    const std::int64_t grain = cpu::grain_of(share * z.channels, cpu::kGrain / 4);
    cpu::for_each_task<kFast>(context, all, grain, [&](std::int64_t chunk) {
      const std::int64_t image = chunk / of_image, pixel = chunk % of_image * share;
      f(chunk, image, (image * z.pixels + pixel) * z.channels, std::min(share, z.pixels - pixel));
    });
  }
};

/// kSums sums of every channel of every image, [N, kSums, C] in double. add(sums, image, element) adds those
/// of the pixel at an element.
template <int kSums, class A> class ChannelSums {
 public:
  static std::size_t bytes(const ChannelGroups& z) {
    const std::int64_t sums = kSums * z.channels;
    return static_cast<std::size_t>(z.images * sums) * sizeof(double) +
           static_cast<std::size_t>(Chunks(z).all * sums) * sizeof(A);
  }
  ChannelSums(const ChannelGroups& z, std::byte* memory)
      : z_(z),
        chunks_(z),
        totals_(reinterpret_cast<double*>(memory)),
        slots_(reinterpret_cast<A*>(totals_ + z.images * kSums * z.channels)) {}

  template <bool kFast, class Add> void accumulate(const CpuContext& context, const Add& add) const {
    const std::int64_t n = kSums * z_.channels;
    chunks_.for_each<kFast>(
        context, z_, [&](std::int64_t chunk, std::int64_t image, std::int64_t first, std::int64_t pixels) {
          A* sums = slots_ + chunk * n;
          std::fill(sums, sums + n, A(0));
          for (std::int64_t i = 0; i < pixels; ++i) add(sums, image, first + i * z_.channels);
        });
    std::fill(totals_, totals_ + z_.images * n, 0.0);
    for (std::int64_t chunk = 0; chunk < chunks_.all; ++chunk) {
      double* to = totals_ + chunk / chunks_.of_image * n;
      for (std::int64_t j = 0; j < n; ++j) to[j] += static_cast<double>(slots_[chunk * n + j]);
    }
  }
  double operator()(std::int64_t image, int sum, std::int64_t channel) const {
    return totals_[(image * kSums + sum) * z_.channels + channel];
  }
  /// Calls put(image, group, mean(sum)) for every group, where mean is over its values, weighted by channel.
  template <class Put> void for_each_group(const A* weights, const Put& put) const {
    for (std::int64_t image = 0; image < z_.images; ++image) {
      for (std::int64_t group = 0; group < z_.groups; ++group) {
        put(image, group, [&](int sum) {
          double total = 0;
          for (std::int64_t c = group * z_.width; c < (group + 1) * z_.width; ++c)
            total += (weights ? static_cast<double>(weights[c]) : 1) * (*this)(image, sum, c);
          return total / z_.count();
        });
      }
    }
  }

 private:
  ChannelGroups z_;
  Chunks chunks_;
  double* totals_;
  A* slots_;
};

/// Two values of every group, repeated for its channels: [N, 2, C].
template <class A> struct PerChannel {
  Scratch memory;
  const ChannelGroups z;

  PerChannel(CpuContext& context, const ChannelGroups& sizes)
      : memory(context.scratch(static_cast<std::size_t>(sizes.images * 2 * sizes.channels) * sizeof(A))),
        z(sizes) {}

  A* first(std::int64_t image) const { return memory.as<A>() + image * 2 * z.channels; }
  A* second(std::int64_t image) const { return first(image) + z.channels; }
  void set(A* values, std::int64_t group, A value) const {
    std::fill_n(values + group * z.width, z.width, value);
  }
};

template <class T, class A>
void write_statistics(CpuContext& context, const ChannelGroups& z, const T* x, double eps, A* stats,
                      const PerChannel<A>& of) {
  const Scratch memory = context.scratch(ChannelSums<1, A>::bytes(z));
  const ChannelSums<1, A> sums(z, memory.as<std::byte>());
  const std::int64_t C = z.channels;
  sums.template accumulate<kFastType<T>>(context, [=](A* __restrict sum, std::int64_t, std::int64_t at) {
    for (std::int64_t c = 0; c < C; ++c) sum[c] += A(x[at + c]);
  });
  sums.for_each_group(nullptr, [&](std::int64_t image, std::int64_t group, const auto& mean) {
    of.set(of.first(image), group, stats[2 * (image * z.groups + group)] = A(mean(0)));
  });
  const auto add_squares = [&](A* __restrict sum, std::int64_t image, std::int64_t at) {
    const A* __restrict mean = of.first(image);
    for (std::int64_t c = 0; c < C; ++c) {
      const A d = A(x[at + c]) - mean[c];
      sum[c] = std::fma(d, d, sum[c]);
    }
  };
  sums.template accumulate<kFastType<T>>(context, add_squares);
  sums.for_each_group(nullptr, [&](std::int64_t image, std::int64_t group, const auto& mean) {
    const A inverse = A(inverse_deviation(mean(0), eps));
    of.set(of.second(image), group, stats[2 * (image * z.groups + group) + 1] = inverse);
  });
}

}  // namespace

void group_norm_forward(CpuContext& context, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                        double eps, Out stats, Out y) {
  if (x.numel() == 0) return;
  dispatch_floating(x.dtype(), "group_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const ChannelGroups z(x, stats);
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const A* weight = gamma.defined() ? gamma.data<A>() : nullptr;
    const A* bias = beta.defined() ? beta.data<A>() : nullptr;
    const PerChannel<A> of(context, z);
    write_statistics(context, z, in, eps, stats.data<A>(), of);
    Chunks(z).for_each<kFastType<T>>(
        context, z, [&](std::int64_t, std::int64_t image, std::int64_t first, std::int64_t pixels) {
          const A* __restrict mean = of.first(image), * __restrict inverse = of.second(image);
          for (std::int64_t i = 0; i < pixels; ++i) {
            const T* __restrict from = in + first + i * z.channels;
            T* __restrict to = out + first + i * z.channels;
            for (std::int64_t c = 0; c < z.channels; ++c) {
              const A normalized = (A(from[c]) - mean[c]) * inverse[c];
              to[c] = T(std::fma(normalized, weight ? weight[c] : A(1), bias ? bias[c] : A(0)));
            }
          }
        });
  });
}

namespace {

/// x with its statistics, dy and gamma.
template <class T, class A> struct Operands {
  const T *x, *dy;
  const A* weight;
  const PerChannel<A>& stats;
};

/// dx from the means over each group of g = dy gamma, and of g times the normalised value.
template <class T, class A>
void write_dx(CpuContext& context, const ChannelGroups& z, const Operands<T, A>& t,
              const PerChannel<A>& means, T* dx) {
  Chunks(z).for_each<kFastType<T>>(
      context, z, [&](std::int64_t, std::int64_t image, std::int64_t first, std::int64_t pixels) {
        const A* __restrict mean = t.stats.first(image), * __restrict inverse = t.stats.second(image);
        const A* __restrict mean_g = means.first(image), * __restrict mean_product = means.second(image);
        for (std::int64_t i = 0; i < pixels; ++i) {
          const T* __restrict from = t.x + first + i * z.channels;
          const T* __restrict gradient = t.dy + first + i * z.channels;
          T* __restrict to = dx + first + i * z.channels;
          for (std::int64_t c = 0; c < z.channels; ++c) {
            const A g = A(gradient[c]) * (t.weight ? t.weight[c] : A(1)),
                    normalized = (A(from[c]) - mean[c]) * inverse[c];
            to[c] = T(layer_norm_dx(g, normalized, inverse[c], mean_g[c], mean_product[c]));
          }
        }
      });
}

}  // namespace

void group_norm_backward(CpuContext& context, const Tensor& x, const Tensor& gamma, const Tensor& stats,
                         const Tensor& dy, Out dx, const GradientTarget& dgamma,
                         const GradientTarget& dbeta) {
  if (x.dim(-1) == 0) return;
  dispatch_floating(x.dtype(), "group_norm", [&]<class T>() {
    using A = Accumulate<T>;
    const ChannelGroups z(x, stats);
    const PerChannel<A> of(context, z), means(context, z);
    const A* saved = stats.data<A>();
    for (std::int64_t i = 0; i < z.images * z.groups; ++i) {
      of.set(of.first(i / z.groups), i % z.groups, saved[2 * i]);
      of.set(of.second(i / z.groups), i % z.groups, saved[2 * i + 1]);
    }
    const Operands<T, A> t{x.data<T>(), dy.data<T>(), gamma.defined() ? gamma.data<A>() : nullptr, of};
    const Scratch memory = context.scratch(ChannelSums<2, A>::bytes(z));
    const ChannelSums<2, A> sums(z, memory.as<std::byte>());
    sums.template accumulate<kFastType<T>>(context, [&](A* sum, std::int64_t image, std::int64_t at) {
      const A* __restrict mean = of.first(image), * __restrict inverse = of.second(image);
      A* __restrict of_dy = sum, * __restrict of_product = sum + z.channels;
      for (std::int64_t c = 0; c < z.channels; ++c) {
        const A g = A(t.dy[at + c]);
        of_dy[c] += g;
        of_product[c] = std::fma(g, (A(t.x[at + c]) - mean[c]) * inverse[c], of_product[c]);
      }
    });
    const auto of_images = [&](int sum) {
      return [&z, &sums, sum](double total, std::int64_t c) {
        for (std::int64_t image = 0; image < z.images; ++image) total += sums(image, sum, c);
        return total;
      };
    };
    cpu::write_parameter<A>(dgamma, z.channels, of_images(1));
    cpu::write_parameter<A>(dbeta, z.channels, of_images(0));
    if (!dx.defined() || dx.numel() == 0) return;
    sums.for_each_group(t.weight, [&](std::int64_t image, std::int64_t group, const auto& mean) {
      means.set(means.first(image), group, A(mean(0)));
      means.set(means.second(image), group, A(mean(1)));
    });
    write_dx(context, z, t, means, dx.data<T>());
  });
}

}  // namespace athanor::kernels
