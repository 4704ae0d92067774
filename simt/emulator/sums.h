#pragma once

#include <cstdint>

#include "simt/emulator/options.h"
#include "simt/fragments.h"

// Sums of tensor cores. Products are exact; PTX leaves open in which order they are added up, and how sums
// are rounded on the way. Here they are f32, each addition rounded once, and their order is options().sums,
// for every instruction the same. A kernel must be right in each order.

namespace simt {

/// The factor in a register: number `half` of two, or a tf32, whose lower 13 bits count as zero.
float factor_of(Factor type, std::uint32_t bits, int half);

struct SumOrder {
  static constexpr int kMax = 17;
  int terms;
  int term[kMax];  ///< a depth, or -1: what was there before
};
/// By options().sums.
const SumOrder& sum_order(int depth);

/// sums[n] += the sum over k of a[k] b[k][n].
template <int N, class Row>
void add_products(const SumOrder& order, float* sums, const float* a, const Row* b) {
  // In double, the product of two numbers of 11 bits and its sum with a float's 24 are as good as exact:
  // rounding twice gives the float that rounding once would give.
  float result[N];
  for (int n = 0; n < N; ++n) result[n] = -0.0f;
  for (int i = 0; i < order.terms; ++i) {
    const int k = order.term[i];
    if (k < 0) {
      for (int n = 0; n < N; ++n) result[n] += sums[n];
    } else {
      const double left = a[k];
      for (int n = 0; n < N; ++n)
        result[n] = static_cast<float>(static_cast<double>(result[n]) + left * static_cast<double>(b[k][n]));
    }
  }
  for (int n = 0; n < N; ++n) sums[n] = result[n];
}

}  // namespace simt
