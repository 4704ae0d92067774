#pragma once

// What the tests of kernels on a device share: each result there, against the CPU's.

#include "kernels/on_device.h"
#include "tests/cuda/device.h"
#include "tests/support/ops.h"

namespace athanor::test {

inline CudaContext& context() {
  return cuda_context(device());
}
/// What sums are made in, and what parameters of norms are kept in.
inline DType wide_dtype(DType dtype) {
  return dtype == DType::f64 ? DType::f64 : DType::f32;
}

/// A context to work in, and tensors that are where it works.
template <class Context> struct Place {
  Context& context;
  Device device;

  /// x there, with its strides and alignment: on the CPU x itself.
  Tensor operator()(const Tensor& x) const { return device.is_cpu() || !x.defined() ? x : on_device_like(x); }
  Tensor empty(const Shape& shape, DType dtype) const { return Tensor::empty(shape, {dtype, device}); }
};

/// A tolerance: none, not even of a zero's sign.
inline constexpr double kBits = -1;

/// What run(place) returns on the device is what it then returns on the CPU: to the bit or, where tolerances
/// are given, within that of each, of which the last holds for all others, too.
template <class F> void expect_as_on_cpu(const F& run, const std::vector<double>& tolerances = {kBits}) {
  const std::vector<Tensor> there = run(Place<CudaContext>{context(), device()}),
                            here = run(Place<CpuContext>{cpu_context(), kCpu});
  ASSERT_EQ(there.size(), here.size());
  for (std::size_t i = 0; i < here.size(); ++i) {
    ASSERT_EQ(there[i].defined(), here[i].defined());
    if (!here[i].defined()) continue;
    const Tensor found = on_cpu_like(there[i]);
    const double tolerance = tolerances[std::min(i, tolerances.size() - 1)];
    EXPECT_TRUE(tolerance == kBits ? same_bits(found, here[i]) : close(found, here[i], tolerance))
        << "result " << i;
  }
}

/// f(shape and layout, dtype) for all that ops are tried on.
template <class F> void for_every_shape(const F& f, std::span<const DType> dtypes = kFloating) {
  for (const DType dtype : dtypes) {
    for (const ShapeCase& wanted : shape_cases()) {
      SCOPED_TRACE(fmt::format("{} {} {}", dtype, wanted.shape, int(wanted.layout)));
      f(wanted, dtype);
    }
  }
}

/// Tensors whose last two axes are exchanged, as views.
inline Tensor swapped(const Tensor& x) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::swap(shape[x.rank() - 1], shape[x.rank() - 2]);
  std::swap(strides[x.rank() - 1], strides[x.rank() - 2]);
  return x.view_as_strided(shape, strides, 0);
}

/// Multiples of 1/8 in [-1, 1]: exact in every floating dtype, and in f32 so are the sums of thousands of
/// their products. Whatever order kernels add them up in, results are equal to the bit.
inline Tensor exact(const ShapeCase& wanted, DType dtype, RandomKey key) {
  Tensor x = make(wanted, dtype);
  std::uint64_t at = 0;
  dispatch_floating(dtype, "test", [&]<class T>() {
    for_each_offset(x, [&](std::int64_t offset) {
      const auto step = static_cast<int>(random_uniform(philox_word(key, at++)) * 17);
      x.data<T>()[offset] = T(static_cast<float>(std::min(step, 16) - 8) / 8);
    });
  });
  return x;
}

}  // namespace athanor::test
