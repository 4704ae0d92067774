#include "optim/buffers.h"

#include "kernels/on_device.h"
#include "kernels/update.h"
#include "optim/flat.h"
#include "optim/step.h"

namespace athanor {

FlatBuffers::FlatBuffers(std::span<const NamedTensor> buffers, Device device) {
  constexpr auto kAlign = static_cast<std::int64_t>(kSliceAlignment / sizeof(float));
  std::int64_t size = 0;
  for (const NamedTensor& buffer : buffers) {
    handles_.push_back(buffer.tensor);
    size += align_elements(buffer.tensor.numel(), kAlign);
  }
  if (size == 0) return;
  const AllocTag named("buffers");
  flat_ = make_flat(size, DType::f32, device);
  std::int64_t at = 0;
  for (const Tensor& handle : handles_) {
    slice_of(flat_, at, handle.shape()).copy_bytes_from(handle.detach().to(device));
    handle.rebind(flat_.storage(), flat_.offset() + at, DType::f32);
    at = align_elements(at + handle.numel(), kAlign);
  }
}

void FlatBuffers::bump() const {
  for (const Tensor& handle : handles_) handle.bump_version();
}

void FlatBuffers::snapshot() {
  if (!flat_.defined()) return;
  if (!snapshot_.defined()) {
    const AllocTag named("buffers");
    snapshot_ = make_flat(flat_.numel(), DType::f32, flat_.device());
  }
  snapshot_.copy_bytes_from(flat_);
}

void FlatBuffers::restore() {
  if (!flat_.defined()) return;
  ATH_CHECK(snapshot_.defined(), "buffers: snapshot() must be called before restore()");
  flat_.copy_bytes_from(snapshot_);
  bump();
}

void FlatBuffers::restore_if_skipped(StepBuffer& step) {
  if (!flat_.defined()) return;
  ATH_CHECK(snapshot_.defined(), "buffers: snapshot() must be called before restore_if_skipped()");
  with_step(step, [&](auto& context) { kernels::copy_if_skipped(context, snapshot_, flat_); });
  bump();
}

}  // namespace athanor
