#pragma once

#include <cstdint>
#include <initializer_list>

#include "kernels/step_state.h"
#include "tensor/tensor.h"

// What a kernel's contract needs: the contexts' names, and how a kernel is declared. The contexts themselves
// are in kernels/cpu/context.h, kernels/cuda/context.h and kernels/account/context.h; kernels/on_device.h,
// which calls kernels, has all three.

namespace athanor {

class CpuContext;
class CudaContext;
class AccountContext;

/// A result of a kernel, which writes the tensor's elements.
using Out = const Tensor&;

/// Whether a kernel overwrites its output or adds to it.
enum class Write : std::uint8_t { overwrite, accumulate };

/// Declares a kernel, `Result name(Context& context, ...)`, for each backend. A backend that does not define
/// it does not link.
#define ATH_KERNEL(Result, name, ...)             \
  Result name(CpuContext& context, __VA_ARGS__);  \
  Result name(CudaContext& context, __VA_ARGS__); \
  Result name(AccountContext& context, __VA_ARGS__)

/// Memory that a launch accesses: a tensor, of which an axis that is broadcast counts once, or so many bytes.
struct AccountOperand {
  AccountOperand(const Tensor& x);  // undefined: nothing
  AccountOperand(std::int64_t size) : bytes(size) {}

  std::int64_t bytes = 0;
  const void* data = nullptr;  ///< of a tensor
};

/// The cost of such a call: AccountContext::map().
void account_map(AccountContext& context, const char* kernel, std::initializer_list<AccountOperand> inputs,
                 std::initializer_list<AccountOperand> results);

#define ATH_PARAMETERS(...) (AccountContext & context, __VA_ARGS__)
#define ATH_OPERANDS(...) \
  { __VA_ARGS__ }
/// Follows the declaration of a kernel that is one launch on a GPU: what it is called there, and the operands
/// that it reads and writes, for the account of a step. A kernel with another cost defines its overload in
/// kernels/account/.
#define ATH_MAP(name, parameters, kernel, inputs, results)                   \
  inline void name ATH_PARAMETERS parameters {                               \
    account_map(context, kernel, ATH_OPERANDS inputs, ATH_OPERANDS results); \
  }

/// The state that kernels of every backend run with.
class ContextBase {
 public:
  ContextBase(const ContextBase&) = delete;
  ContextBase& operator=(const ContextBase&) = delete;

  /// Same bits for the same inputs and thread count. (Kernels that always are deterministic ignore it.)
  bool deterministic = false;

  /// Number of random ops of this thread in the current step: part of the next op's random key. The trainer
  /// resets it to 0 when a step begins.
  std::int64_t random_ops() const { return random_ops_; }
  void set_random_ops(std::int64_t count) { random_ops_ = count; }
  std::int64_t next_random_op() { return random_ops_++; }

  /// The StepState from which kernels read their scalars, in memory of the context's device.
  StepState* step() const { return step_; }
  /// Makes `step` (which must outlive its use here) the current one; null restores the context's own.
  void bind_step(StepState* step) { step_ = step ? step : own_step_; }

 protected:
  ContextBase() = default;
  void set_own_step(StepState* step) { own_step_ = step_ = step; }

 private:
  std::int64_t random_ops_ = 0;
  StepState* own_step_ = nullptr;
  StepState* step_ = nullptr;
};

}  // namespace athanor
