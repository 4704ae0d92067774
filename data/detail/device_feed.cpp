#include "data/detail/device_feed.h"

#include "tensor/allocator.h"

namespace athanor::detail {

DeviceFeed::DeviceFeed(Device device, int slots, std::int64_t rows, const ImageSpec& spec)
    : device_(device), copies_(Stream::create(device)), rows_(rows), row_bytes_(spec.bytes()) {
  const AllocTag named("data");
  for (int i = 0; i < slots; ++i) {
    Place& place = places_.emplace_back(Tensor::empty({SlotTensors::bytes(rows, spec)}, {DType::u8, device}),
                                        rows, spec);
    place.used.record(current_stream(device));  // by whoever had this memory before
  }
}

// The memory belongs to the stream that was current when it was made; the copies are on another.
DeviceFeed::~DeviceFeed() {
  for (const Place& place : places_) record_stream(place.tensors.memory, copies_);
}

void DeviceFeed::send(std::int64_t number, const SlotTensors& from, std::int64_t rows) {
  Place& place = of(number);
  const StreamGuard guard(copies_);
  copies_.wait(place.used);
  const std::int64_t bytes = SlotTensors::pixels_at(rows_) + rows * row_bytes_;
  const auto part = [&](const Tensor& memory) { return memory.view_as_strided({bytes}, {1}, 0); };
  if (rows > 0) part(place.tensors.memory).copy_bytes_from(part(from.memory));
  place.arrived.record(copies_);
}

const SlotTensors& DeviceFeed::take(std::int64_t number) const {
  const Place& place = of(number);
  current_stream(device_).wait(place.arrived);
  return place.tensors;
}

void DeviceFeed::let_go(std::int64_t number) {
  of(number).used.record(current_stream(device_));
}

}  // namespace athanor::detail
