#include "data/detail/device_feed.h"

#include "tensor/allocator.h"

namespace athanor::detail {

DeviceFeed::DeviceFeed(Device device, int slots, const RowLayout& layout)
    : device_(device), copies_(Stream::create(device)), layout_(layout) {
  const AllocTag named("data");
  for (int i = 0; i < slots; ++i) {
    DeviceSlot& slot = slots_.emplace_back(Tensor::empty({layout.bytes}, {DType::u8, device}), layout);
    slot.used.record(current_stream(device));  // by the memory's previous user
  }
}

// The memory belongs to the stream current at its creation; copies use another one.
DeviceFeed::~DeviceFeed() {
  for (const DeviceSlot& slot : slots_) record_stream(slot.tensors.memory, copies_);
}

void DeviceFeed::send(std::int64_t number, const SlotTensors& from, std::int64_t rows) {
  DeviceSlot& slot = of(number);
  const StreamGuard guard(copies_);
  copies_.wait(slot.used);
  const std::int64_t bytes = layout_.end_of(rows);
  const auto part = [&](const Tensor& memory) { return memory.view_as_strided({bytes}, {1}, 0); };
  if (rows > 0) part(slot.tensors.memory).copy_bytes_from(part(from.memory));
  slot.arrived.record(copies_);
}

const SlotTensors& DeviceFeed::take(std::int64_t number) const {
  const DeviceSlot& slot = of(number);
  current_stream(device_).wait(slot.arrived);
  return slot.tensors;
}

void DeviceFeed::release(std::int64_t number) {
  of(number).used.record(current_stream(device_));
}

}  // namespace athanor::detail
