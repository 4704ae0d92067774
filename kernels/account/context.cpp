#include "kernels/account/context.h"

#include <algorithm>

#include "kernels/account/detail/cost.h"

namespace athanor {

namespace detail {
constinit thread_local AccountContext* account = nullptr;
}  // namespace detail

AccountOperand::AccountOperand(const Tensor& x) {
  if (!x.defined()) return;
  bytes = static_cast<std::int64_t>(size_of(x.dtype()));
  for (int i = 0; i < x.rank(); ++i) bytes *= x.shape()[i] > 1 && x.strides()[i] == 0 ? 1 : x.shape()[i];
  data = x.raw_data();
}

std::int64_t account::distinct_bytes(std::initializer_list<AccountOperand> operands) {
  std::int64_t bytes = 0;
  for (const AccountOperand* operand = operands.begin(); operand != operands.end(); ++operand) {
    const bool again =
        operand->data && std::any_of(operands.begin(), operand, [&](const AccountOperand& before) {
          return before.data == operand->data && before.bytes == operand->bytes;
        });
    if (!again) bytes += operand->bytes;
  }
  return bytes;
}

void AccountContext::launch(const char* kernel, std::initializer_list<AccountOperand> inputs,
                            std::initializer_list<AccountOperand> results) const {
  KernelCost cost{.kernel = kernel, .bytes_read = account::distinct_bytes(inputs)};
  for (const AccountOperand& result : results) cost.bytes_written += result.bytes;
  add(cost);
}

void AccountContext::map(const char* kernel, std::initializer_list<AccountOperand> inputs,
                         std::initializer_list<AccountOperand> results) const {
  if (std::ranges::any_of(results, [](const AccountOperand& result) { return result.bytes > 0; }))
    launch(kernel, inputs, results);
}

void account_map(AccountContext& context, const char* kernel, std::initializer_list<AccountOperand> inputs,
                 std::initializer_list<AccountOperand> results) {
  context.map(kernel, inputs, results);
}

}  // namespace athanor
