#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <utility>

#include "kernels/context.h"

namespace athanor {

/// What one launch on a GPU takes, as its kernel's contract has it. Bytes of global memory count once for
/// each launch, however often its threads access them.
struct KernelCost {
  const char* kernel = "";  ///< as it is launched: "batch_norm_sums"
  std::int64_t bytes_read = 0, bytes_written = 0;
  std::int64_t flops = 0;    ///< of products of matrices and convolutions; else 0
  DType dtype = DType::f32;  ///< of their factors
  bool assumed = false;      ///< of cuDNN or cuBLASLt: inputs and outputs once
};

/// Computes nothing, but records what the kernels of a GPU would take: kernels/account/ has the launches of
/// every contract. While an AccountScope is alive it replaces cpu_context() on its thread, so memory of the
/// CPU stands for that of the GPU; nothing reads or writes it.
class AccountContext : public ContextBase {
 public:
  explicit AccountContext(std::function<void(const KernelCost&)> listener) : add(std::move(listener)) {}

  /// A launch that reads each input once, two that are the same tensor together, and writes each result once.
  void launch(const char* kernel, std::initializer_list<AccountOperand> inputs,
              std::initializer_list<AccountOperand> results) const;
  /// The same of a kernel whose grid covers its results: nothing is launched if they are empty.
  void map(const char* kernel, std::initializer_list<AccountOperand> inputs,
           std::initializer_list<AccountOperand> results) const;

  std::function<void(const KernelCost&)> add;
  bool vendor = true;         ///< products and convolutions are cuBLASLt's and cuDNN's
  int multiprocessors = 132;  ///< of the GPU, on which the partial results of some kernels depend
};

namespace detail {
extern constinit thread_local AccountContext* account;
}

/// While it lives, this thread counts the costs of kernels.
class AccountScope {
 public:
  explicit AccountScope(AccountContext& context) : before_(std::exchange(detail::account, &context)) {}
  ~AccountScope() { detail::account = before_; }
  AccountScope(const AccountScope&) = delete;
  AccountScope& operator=(const AccountScope&) = delete;

 private:
  AccountContext* before_;
};

}  // namespace athanor
