#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/detail/slot.h"
#include "data/device_jpeg.h"
#include "tensor/stream.h"

namespace athanor::detail {

/// A staged file that neither the GPU nor the CPU can decode.
struct UndecodedFile {
  std::int64_t row = 0;
  std::string why;
};

/// Slots on a GPU, laid out like the host's, each with two events. Images in a PixelStage are copied, and
/// scaled into the slot, on the copy stream, before `arrived`: one memory serves all slots. `arrived` on the
/// copy stream: the caller's stream waits for it, and then the host's slot may be reused. `used` on the
/// caller's stream: the copy stream waits for it before it writes the next batch.
class DeviceFeed {
 public:
  /// `jpeg` decodes what a PixelStage holds as files.
  DeviceFeed(Device device, int slots, const RowLayout& layout, std::shared_ptr<DeviceJpeg> jpeg);
  ~DeviceFeed();
  DeviceFeed(const DeviceFeed&) = delete;
  DeviceFeed& operator=(const DeviceFeed&) = delete;

  /// Queues the copy of the first `rows` rows of step `number`, and the scaling of its images. Files that the
  /// GPU refuses are decoded here, one by one. Returns the first file that cannot be decoded; its image has
  /// no content.
  std::optional<UndecodedFile> send(std::int64_t number, const Slot& from, std::int64_t rows);
  /// Files that the GPU refused, and what it said of the first.
  std::int64_t refused() const { return refused_; }
  const std::string& first_refusal() const { return first_refusal_; }
  /// Whether the copy of step `number` is done. Does not wait.
  bool arrived(std::int64_t number) const { return of(number).arrived.done(); }
  /// Makes work that the caller queues from now on wait for step `number`.
  const SlotTensors& take(std::int64_t number) const;
  /// No work that the caller queues from now on uses step `number`.
  void release(std::int64_t number);

 private:
  struct DeviceSlot {
    DeviceSlot(const Tensor& memory, const RowLayout& layout)
        : tensors(memory, layout), arrived(memory.device()), used(memory.device()) {}
    SlotTensors tensors;
    Event arrived, used;
  };
  DeviceSlot& of(std::int64_t number) { return slots_[static_cast<std::size_t>(number) % slots_.size()]; }
  const DeviceSlot& of(std::int64_t number) const {
    return slots_[static_cast<std::size_t>(number) % slots_.size()];
  }

  void copy(const DeviceSlot& to, const SlotTensors& from, std::int64_t begin, std::int64_t end) const;
  std::optional<UndecodedFile> scale(const DeviceSlot& to, const Slot& from, std::int64_t rows);
  std::optional<UndecodedFile> decode(const Slot& from, std::int64_t rows);
  /// Whether the GPU takes all of them.
  bool decodes(std::span<const DeviceJpeg::Job> jobs);
  std::optional<UndecodedFile> decode_on_host(const Slot& from, std::int64_t row);

  Device device_;
  Stream copies_;
  const RowLayout& layout_;
  std::deque<DeviceSlot> slots_;
  Tensor staged_;  // what a PixelStage holds, and decoded files; of the copy stream
  std::shared_ptr<DeviceJpeg> jpeg_;
  std::vector<DeviceJpeg::Job> jobs_;
  std::vector<std::int64_t> job_rows_;
  std::int64_t refused_ = 0;
  std::string first_refusal_;
};

}  // namespace athanor::detail
