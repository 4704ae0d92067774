#include "optim/load.h"

namespace athanor {

void load_tensors(const StateDict& target, const StateDict& source, const char* who) {
  check_tensors(target, source, who);
  copy_tensors(target, source);
}

void check_tensors(const StateDict& target, const StateDict& source, const char* who) {
  for (const StateDict::Entry& entry : target) {
    const Tensor* to = std::get_if<Tensor>(&entry.value);
    if (!to) continue;
    const Tensor& from = source.tensor(entry.name, to->shape());
    ATH_CHECK(from.dtype() == to->dtype() && from.is_contiguous(), "{}: '{}' must be dense {}, but is {}{}",
              who, entry.name, to->dtype(), from.is_contiguous() ? "" : "strided ", from.dtype());
  }
  source.require_all_used(who);
}

void copy_tensors(const StateDict& target, const StateDict& source) {
  for (const StateDict::Entry& entry : target) {
    if (const Tensor* to = std::get_if<Tensor>(&entry.value)) {
      to->copy_bytes_from(source.tensor(entry.name).to(to->device()));
    }
  }
}

}  // namespace athanor
