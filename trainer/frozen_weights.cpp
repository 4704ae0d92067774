#include "trainer/frozen_weights.h"

#include "kernels/copy.h"
#include "kernels/hash.h"
#include "kernels/on_device.h"
#include "optim/flat.h"
#include "optim/load.h"
#include "tensor/base/error.h"

namespace athanor {

FrozenWeights::FrozenWeights(const std::vector<Parameter>& parameters,
                             const std::vector<NamedTensor>& buffers, Precision precision, Device device) {
  const AllocTag named("frozen");
  const auto take = [&](const std::string& name, const Tensor& handle, DType dtype) {
    ATH_CHECK(handle.dtype() == DType::f32 && handle.is_contiguous(),
              "frozen: {} must be f32 and dense when a run starts, but is {}", name, handle.dtype());
    Entry entry{name, handle, handle.detach()};
    if (dtype != DType::f32) {
      entry.values = entry.values.to(kCpu);
      const Tensor weights = Tensor::empty(handle.shape(), {dtype, device});
      handle.rebind(weights.storage(), weights.offset(), dtype);
    } else if (handle.device() != device) {
      entry.values = entry.values.to(device);
      handle.rebind(entry.values.storage(), entry.values.offset(), dtype);
    }
    write_handle(entry);
    entries_.push_back(std::move(entry));
  };
  for (const Parameter& one : parameters) {
    take(one.name, one.tensor, one.keep_f32 ? DType::f32 : compute_dtype(precision));
    numel_ += one.tensor.numel();
  }
  for (const NamedTensor& one : buffers) take(one.name, one.tensor, DType::f32);
}

void FrozenWeights::write_handle(Entry& entry) {
  if (entry.handle.dtype() != DType::f32) {
    const Tensor values = entry.values.to(entry.handle.device());
    on_device(values.device(), [&](auto& context) { kernels::copy(context, values, entry.handle.detach()); });
  }
  entry.handle.bump_version();
  entry.version = entry.handle.version();
}

void FrozenWeights::check() const {
  for (const Entry& entry : entries_) {
    ATH_CHECK(!entry.handle.requires_grad(),
              "frozen: {} must stay frozen during a run, but requires a gradient; end the run, then call "
              "fit() again with it unfrozen",
              entry.name);
  }
}

StateDict FrozenWeights::state_dict() const {
  StateDict state;
  for (const Entry& entry : entries_) state.set(entry.name, entry.values);
  return state;
}

void FrozenWeights::load_state_dict(const StateDict& state) {
  load_tensors(state_dict(), state, "frozen");
  for (Entry& entry : entries_) write_handle(entry);
}

std::uint64_t FrozenWeights::hash() const {
  std::uint64_t sum = 0, first = 0;
  for (const Entry& entry : entries_) {
    const Tensor flat = slice_of(entry.values, 0, {entry.values.numel()});
    sum +=
        on_device(flat.device(), [&](auto& context) { return kernels::hash_elements(context, flat, first); });
    first += static_cast<std::uint64_t>(flat.numel());
  }
  return kernels::mix64(sum + first);
}

void FrozenWeights::keep_unrounded(PackedModel& packed) const {
  for (const Entry& entry : entries_)
    if (entry.handle.dtype() != DType::f32) packed.keep_unrounded(entry.handle, entry.values);
}

void FrozenWeights::put_back() const {
  for (const Entry& entry : entries_) {
    if (entry.handle.version() == entry.version)
      entry.handle.rebind(entry.values.storage(), entry.values.offset(), DType::f32);
  }
}

}  // namespace athanor
