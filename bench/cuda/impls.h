#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include "bench/support/device_case.h"
#include "kernels/cuda/vendor.h"
#include "kernels/impl.h"

namespace athanor::bench {

/// A way to make a product or a convolution: by whom, of what, and whether in tf32.
template <class Impl> struct Way {
  DType dtype = DType::f32;
  Impl impl = Impl::automatic;
  bool tf32 = false;

  std::string name() const { return std::string(name_of(impl)) + (tf32 ? "_tf32" : ""); }
  /// What tensor cores reach, except in f32, which they do not have.
  std::string peak() const {
    return tf32 ? "tf32" : dtype == DType::f32 ? "FMA" : std::string(name_of(dtype));
  }
  double tolerance() const { return tf32 ? 4e-3 : 4 * epsilon_of(dtype) + 2e-4; }
};

/// reference, vendor (where there is one) and automatic, in f32, tf32, f16 and bf16. Products of half types
/// also by each of our own tensor-core kernels that the device has.
template <class Impl> std::vector<Way<Impl>> ways() {
  std::vector<Way<Impl>> all;
  const bool has_bf16 = bench_dtypes().size() == 3;  // and with it tf32
  for (const DType dtype : bench_dtypes()) {
    all.push_back({dtype, Impl::reference, false});
    if constexpr (std::is_same_v<Impl, MatmulImpl>) {
      if (size_of(dtype) == 2) all.push_back({dtype, Impl::mma, false});
      if (size_of(dtype) == 2 && device_info(bench_device()).sm() == 90)
        all.push_back({dtype, Impl::wgmma, false});
    }
    for (const bool tf32 : {false, true}) {
      if (!cuda::has_vendor() || (tf32 && (dtype != DType::f32 || !has_bf16))) continue;
      all.push_back({dtype, Impl::vendor, tf32});
      all.push_back({dtype, Impl::automatic, tf32});
    }
  }
  return all;
}

}  // namespace athanor::bench
