#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/account/context.h"

// What the costs in this folder are written with. A cost is the distinct bytes of global memory that a launch
// reads, and those that it writes: what DRAM moves if nothing is fetched twice. `simt/emulator/counters.h`
// counts the same of a kernel that is emulated, and a test compares them. How a kernel is divided, and so
// what partial results it has, is asked of the plans that its launcher uses (kernels/cuda/*_plan.h).

namespace athanor::account {

inline std::int64_t size(DType dtype) {
  return static_cast<std::int64_t>(size_of(dtype));
}
/// Of an element of the accumulation type.
inline std::int64_t wide(const Tensor& x) {
  return x.dtype() == DType::f64 ? 8 : 4;
}
/// Elements of 16 bytes.
inline std::int64_t per_vector(DType dtype) {
  return std::max<std::int64_t>(16 / size(dtype), 1);
}
constexpr std::int64_t pieces(std::int64_t n, std::int64_t of) {
  return (n + of - 1) / of;
}

/// Bytes of a tensor; an axis that is broadcast counts once, an undefined tensor 0.
inline std::int64_t bytes(const Tensor& x) {
  return AccountOperand(x).bytes;
}
/// Of all, once for those that are the same memory.
std::int64_t distinct_bytes(std::initializer_list<AccountOperand> operands);

inline void launch(AccountContext& context, const char* kernel, std::int64_t read, std::int64_t written) {
  context.launch(kernel, {read}, {written});
}

}  // namespace athanor::account

/// As ATH_MAP, for a contract whose cost is more than its operands' bytes, or for an explicit specialisation.
#define ATH_COST(contract, parameters, kernel, inputs, results)              \
  void contract ATH_PARAMETERS parameters {                                  \
    account_map(context, kernel, ATH_OPERANDS inputs, ATH_OPERANDS results); \
  }
