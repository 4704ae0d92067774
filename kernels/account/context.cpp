#include "kernels/account/context.h"

#include <algorithm>

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

void AccountContext::launch(const char* kernel, std::initializer_list<AccountOperand> inputs,
                            std::initializer_list<AccountOperand> results) const {
  KernelCost cost{.kernel = kernel};
  for (const AccountOperand* input = inputs.begin(); input != inputs.end(); ++input) {
    const bool again = input->data && std::any_of(inputs.begin(), input, [&](const AccountOperand& before) {
                         return before.data == input->data && before.bytes == input->bytes;
                       });
    if (!again) cost.bytes_read += input->bytes;
  }
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
