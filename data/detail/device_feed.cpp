// Explained in docs/feeding_the_furnace.md.
#include "data/detail/device_feed.h"

#include <utility>

#include "kernels/on_device.h"
#include "kernels/resize.h"
#include "tensor/allocator.h"

namespace athanor::detail {

DeviceFeed::DeviceFeed(Device device, int slots, const RowLayout& layout, std::shared_ptr<DeviceJpeg> jpeg)
    : device_(device), copies_(Stream::create(device)), layout_(layout), jpeg_(std::move(jpeg)) {
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

std::optional<UndecodedFile> DeviceFeed::send(std::int64_t number, const Slot& from, std::int64_t rows) {
  DeviceSlot& slot = of(number);
  const StreamGuard guard(copies_);
  copies_.wait(slot.used);
  const std::int64_t end = rows > 0 ? layout_.end_of(rows) : 0;
  const RowLayout::Position& images = layout_.places[layout_.image];
  bool all_staged = from.stage && rows > 0;
  for (std::int64_t row = 0; all_staged && row < rows; ++row)
    all_staged = from.stage->image(row).at != kernels::StagedImage::kComplete;
  copy(slot, from.tensors, 0, all_staged ? images.at : end);  // the slot's images have no content then
  if (all_staged) copy(slot, from.tensors, images.at + layout_.rows * images.bytes, end);
  std::optional<UndecodedFile> undecoded;
  if (from.stage && from.stage->used() + from.stage->decoded() > from.stage->pixels_at())
    undecoded = scale(slot, from, rows);
  slot.arrived.record(copies_);
  return undecoded;
}

void DeviceFeed::copy(const DeviceSlot& to, const SlotTensors& from, std::int64_t begin,
                      std::int64_t end) const {
  const auto part = [&](const Tensor& memory) { return memory.view_as_strided({end - begin}, {1}, begin); };
  if (begin < end) part(to.tensors.memory).copy_bytes_from(part(from.memory));
}

std::optional<UndecodedFile> DeviceFeed::scale(const DeviceSlot& to, const Slot& slot, std::int64_t rows) {
  const PixelStage& from = *slot.stage;
  const std::int64_t needed = from.memory().numel() + from.decoded();
  if (!staged_.defined() || staged_.numel() < needed) {
    const AllocTag named("data");
    staged_ = {};  // queued work still uses it; what is queued on this stream from now on comes later
    staged_ = Tensor::empty({needed + from.decoded() / 8}, {DType::u8, device_});
  }
  const auto part = [](const Tensor& memory, std::int64_t begin, std::int64_t bytes) {
    return memory.view_as_strided({bytes}, {1}, begin);
  };
  part(staged_, 0, from.used()).copy_bytes_from(part(from.memory(), 0, from.used()));
  std::optional<UndecodedFile> undecoded;
  if (from.decoded() > 0) undecoded = decode(slot, rows);
  const Tensor images = part(staged_, 0, rows * static_cast<std::int64_t>(sizeof(kernels::StagedImage)));
  const std::int64_t end = from.decoded() > 0 ? needed : from.used();
  const Tensor pixels = part(staged_, from.pixels_at(), end - from.pixels_at());
  const Tensor& all = to.tensors.images;
  Shape shape = all.shape();
  shape[0] = rows;
  const Tensor y = all.view_as_strided(shape, all.strides(), 0);
  on_device(device_, [&](auto& context) { kernels::resize_images(context, images, pixels, y); });
  return undecoded;
}

// The GPU does not say which file it refuses: halves of the batch, and halves of those, lead to it.
std::optional<UndecodedFile> DeviceFeed::decode(const Slot& from, std::int64_t rows) {
  jobs_.clear();
  job_rows_.clear();
  std::uint8_t* const pixels = staged_.data<std::uint8_t>() + from.stage->pixels_at();
  for (std::int64_t row = 0; row < rows; ++row) {
    const kernels::StagedImage& image = from.stage->image(row);
    if (from.stage->file(row).empty()) continue;
    jobs_.push_back({from.stage->file(row), pixels + image.at, image.height, image.width});
    job_rows_.push_back(row);
  }
  std::optional<UndecodedFile> undecoded;
  using Part = std::span<const DeviceJpeg::Job>;
  for (std::vector<Part> parts{jobs_}; !parts.empty();) {
    const Part part = parts.back();
    parts.pop_back();
    if (decodes(part)) continue;
    if (part.size() > 1) {
      parts.push_back(part.subspan(part.size() / 2));
      parts.push_back(part.first(part.size() / 2));  // next, so that rows are in order
      continue;
    }
    ++refused_;
    const auto failed = decode_on_host(from, job_rows_[static_cast<std::size_t>(part.data() - jobs_.data())]);
    if (!undecoded) undecoded = failed;
  }
  return undecoded;
}

bool DeviceFeed::decodes(std::span<const DeviceJpeg::Job> jobs) {
  try {
    jpeg_->decode(jobs);
    return true;
  } catch (const IoError& error) {
    if (first_refusal_.empty()) first_refusal_ = error.what();
    return false;
  }
}

std::optional<UndecodedFile> DeviceFeed::decode_on_host(const Slot& from, std::int64_t row) {
  const PixelStage& stage = *from.stage;
  const kernels::StagedImage& image = stage.image(row);
  const std::int64_t bytes = std::int64_t{image.height} * image.width * 3;
  const Tensor pixels = Tensor::empty({bytes}, {DType::u8, kCpu});
  try {
    stage.decoder()(stage.file(row), pixels.data<std::uint8_t>());
  } catch (const IoError& error) {
    return UndecodedFile{row, error.what()};
  }
  staged_.view_as_strided({bytes}, {1}, stage.pixels_at() + image.at).copy_bytes_from(pixels);
  return std::nullopt;
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
