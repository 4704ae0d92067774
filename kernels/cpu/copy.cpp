#include "kernels/copy.h"

#include <cstring>

#include "kernels/cpu/isa.h"
#include "kernels/cpu/iterate.h"

namespace athanor::kernels {
namespace {

// Between 16-bit types and integers the value passes through float or double, whichever holds it.
template <class To, class From> To convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (sizeof(From) == 2) {
    return convert<To>(static_cast<float>(value));
  } else if constexpr (sizeof(To) == 2) {
    return To(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else {
    return static_cast<To>(value);
  }
}

template <class From, class To, class F>
void for_each_pair(CpuContext& context, const Tensor& x, const Tensor& y, const F& f) {
  const cpu::Walk<2> walk(y.shape(), {&x, &y});
  const std::int64_t step = walk.row_stride(0);
  const From* from = x.data<From>();
  To* to = y.data<To>();
  cpu::for_each_row(context, walk, [&](const auto& offset, std::int64_t n) {
    const From* in = from + offset[0];
    To* out = to + offset[1];
    if (step == 1) {
      cpu::vectorize([&] {
        for (std::int64_t i = 0; i < n; ++i) f(in[i], out[i]);
      });
    } else {
      for (std::int64_t i = 0; i < n; ++i) f(in[i * step], out[i]);
    }
  });
}

}  // namespace

template <> void copy(CpuContext& context, const Tensor& x, const Tensor& y) {
  dispatch_any(x.dtype(), [&]<class From>() {
    dispatch_any(y.dtype(), [&]<class To>() {
      for_each_pair<From, To>(context, x, y, [](const From& in, To& out) { out = convert<To>(in); });
    });
  });
}

template <> void fill(CpuContext& context, const Tensor& y, double value) {
  dispatch_any(y.dtype(), [&]<class T>() {
    const T element = convert<T>(value);
    T* to = y.data<T>();
    cpu::parallel_for(context, y.numel(), cpu::kGrain, [&](std::int64_t begin, std::int64_t end) {
      std::fill(to + begin, to + end, element);
    });
  });
}

template <> void add_into(CpuContext& context, const Tensor& x, const Tensor& y) {
  dispatch_floating(x.dtype(), "add_into", [&]<class From>() {
    dispatch_floating(y.dtype(), "add_into", [&]<class To>() {
      using A = Accumulate<To>;
      for_each_pair<From, To>(context, x, y,
                              [](const From& in, To& out) { out = To(A(out) + A(convert<A>(in))); });
    });
  });
}

}  // namespace athanor::kernels
