#include "kernels/activate.h"
#include "kernels/cpu/conv_impl.h"
#include "kernels/cpu/parallel.h"

namespace athanor::cpu {
namespace {

// Rows of the outermost loop that are worth a thread.
std::int64_t grain_of(const ConvSize& size, std::int64_t rows) {
  return kGrain * rows / std::max<std::int64_t>(1, size.work()) + 1;
}

}  // namespace

template <class T>
void conv_forward_reference(CpuContext& context, const ConvSize& z, Activation activation, const T* x,
                            const T* w, const T* bias, T* y) {
  using A = Accumulate<T>;
  const std::int64_t gc = z.group_c(), gk = z.group_k();
  kernels::dispatch_activation(activation, [&]<class Op>() {
    parallel_for(context, z.n * z.p, grain_of(z, z.n * z.p), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t np = begin; np < end; ++np) {
        const std::int64_t image = np / z.p, p = np % z.p;
        for (std::int64_t q = 0; q < z.q; ++q) {
          for (std::int64_t k = 0; k < z.k; ++k) {
            A sum = 0;
            for (std::int64_t r = 0; r < z.r; ++r) {
              for (std::int64_t s = 0; s < z.s; ++s) {
                const std::int64_t row = z.row(p, r), column = z.column(q, s);
                if (row < 0 || row >= z.h || column < 0 || column >= z.w) continue;
                const T* pixel = x + ((image * z.h + row) * z.w + column) * z.c + k / gk * gc;
                const T* tap = w + ((k * z.r + r) * z.s + s) * gc;
                for (std::int64_t c = 0; c < gc; ++c) sum += A(pixel[c]) * A(tap[c]);
              }
            }
            if (bias) sum += A(bias[k]);
            y[(np * z.q + q) * z.k + k] = T(Op::forward(sum));
          }
        }
      }
    });
  });
}

template <class T>
void conv_backward_data_reference(CpuContext& context, const ConvSize& z, const T* dy, const T* w, T* dx) {
  using A = Accumulate<T>;
  const std::int64_t gc = z.group_c(), gk = z.group_k();
  parallel_for(context, z.n * z.h, grain_of(z, z.n * z.h), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t nh = begin; nh < end; ++nh) {
      const std::int64_t image = nh / z.h, row = nh % z.h;
      for (std::int64_t column = 0; column < z.w; ++column) {
        for (std::int64_t c = 0; c < z.c; ++c) {
          A sum = 0;
          const std::int64_t group = c / gc;
          for (std::int64_t r = 0; r < z.r; ++r) {
            for (std::int64_t s = 0; s < z.s; ++s) {
              // The output that saw this pixel through tap (r, s), if there is one.
              const std::int64_t top = row + z.padding_h - r * z.dilation_h,
                                 left = column + z.padding_w - s * z.dilation_w;
              if (top < 0 || left < 0 || top % z.stride_h != 0 || left % z.stride_w != 0) continue;
              const std::int64_t p = top / z.stride_h, q = left / z.stride_w;
              if (p >= z.p || q >= z.q) continue;
              const T* gradient = dy + ((image * z.p + p) * z.q + q) * z.k;
              for (std::int64_t k = group * gk; k < (group + 1) * gk; ++k)
                sum += A(gradient[k]) * A(w[((k * z.r + r) * z.s + s) * gc + c % gc]);
            }
          }
          dx[(nh * z.w + column) * z.c + c] = T(sum);
        }
      }
    }
  });
}

template <class T, class W>
void conv_backward_weights_reference(CpuContext& context, const ConvSize& z, const T* x, const T* dy, W* dw,
                                     bool accumulate) {
  using A = Accumulate<T>;
  const std::int64_t gc = z.group_c(), gk = z.group_k(), taps = z.k * z.r * z.s;
  parallel_for(context, taps, grain_of(z, taps), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t tap = begin; tap < end; ++tap) {
      const std::int64_t k = tap / (z.r * z.s), r = tap / z.s % z.r, s = tap % z.s;
      for (std::int64_t c = 0; c < gc; ++c) {
        A sum = 0;
        for (std::int64_t image = 0; image < z.n; ++image) {
          for (std::int64_t p = 0; p < z.p; ++p) {
            const std::int64_t row = z.row(p, r);
            if (row < 0 || row >= z.h) continue;
            for (std::int64_t q = 0; q < z.q; ++q) {
              const std::int64_t column = z.column(q, s);
              if (column < 0 || column >= z.w) continue;
              sum += A(x[((image * z.h + row) * z.w + column) * z.c + k / gk * gc + c]) *
                     A(dy[((image * z.p + p) * z.q + q) * z.k + k]);
            }
          }
        }
        W& out = dw[tap * gc + c];
        out = W(accumulate ? A(out) + sum : sum);
      }
    }
  });
}

#define ATH_INSTANTIATE(T)                                                                           \
  template void conv_forward_reference(CpuContext&, const ConvSize&, Activation, const T*, const T*, \
                                       const T*, T*);                                                \
  template void conv_backward_data_reference(CpuContext&, const ConvSize&, const T*, const T*, T*);  \
  template void conv_backward_weights_reference(CpuContext&, const ConvSize&, const T*, const T*, T*, bool);
ATH_INSTANTIATE(double)
ATH_INSTANTIATE(float)
ATH_INSTANTIATE(Half)
ATH_INSTANTIATE(BFloat16)
#undef ATH_INSTANTIATE
template void conv_backward_weights_reference(CpuContext&, const ConvSize&, const Half*, const Half*, float*,
                                              bool);
template void conv_backward_weights_reference(CpuContext&, const ConvSize&, const BFloat16*, const BFloat16*,
                                              float*, bool);

}  // namespace athanor::cpu
