#include "data/pixel_stage.h"

#include <algorithm>

#include "kernels/resize_ops.h"
#include "tensor/allocator.h"
#include "tensor/pinned.h"

namespace athanor {
namespace {

constexpr std::int64_t kAlignment = 64;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t bytes_of(const kernels::StagedImage& image) {
  return aligned(std::int64_t{image.height} * image.width * image.channels);
}

bool has_many_taps(const kernels::StagedImage& image) {
  return std::max(kernels::taps_of(image.rows), kernels::taps_of(image.columns)) > kernels::kManyTaps;
}

/// The place of `bytes` among `room`; -1: there is none.
std::int64_t reserve(std::atomic<std::int64_t>& used, std::int64_t bytes, std::int64_t room) {
  std::int64_t at = used.load(std::memory_order_relaxed);
  do {
    if (bytes > room - at) return -1;
  } while (!used.compare_exchange_weak(at, at + bytes, std::memory_order_relaxed));
  return at;
}

}  // namespace

PixelStage::PixelStage(std::int64_t rows, std::int64_t image_bytes, bool pinned)
    : rows_(rows),
      result_bytes_(rows * aligned(image_bytes)),
      pixels_at_(aligned(rows * static_cast<std::int64_t>(sizeof(kernels::StagedImage)))),
      pinned_(pinned),
      files_(static_cast<std::size_t>(rows)) {
  make(kFirst * result_bytes_);
  clear(0);
}

void PixelStage::make(std::int64_t capacity) {
  const AllocTag named("data");
  const Shape bytes{pixels_at_ + capacity};
  memory_ = {};  // first, so that its place may be used again
  memory_ = pinned_ ? empty_pinned(bytes, DType::u8) : Tensor::empty(bytes, {DType::u8, kCpu});
}

kernels::StagedImage* PixelStage::images() const {
  return reinterpret_cast<kernels::StagedImage*>(memory_.data<std::uint8_t>());
}

std::uint8_t* PixelStage::take(std::int64_t row, kernels::StagedImage image) {
  complete(row);
  if (has_many_taps(image)) return nullptr;
  wanted_.fetch_add(bytes_of(image), std::memory_order_relaxed);
  image.at = reserve(used_, bytes_of(image), capacity());
  if (image.at < 0) return nullptr;
  images()[row] = image;
  return memory_.data<std::uint8_t>() + pixels_at_ + image.at;
}

bool PixelStage::take_file(std::int64_t row, kernels::StagedImage image, std::span<const std::byte> file,
                           HostDecoder on_host) {
  complete(row);
  if (has_many_taps(image)) return false;
  const std::int64_t at = reserve(decoded_, bytes_of(image), kMost * result_bytes_);
  if (at < 0) return false;
  image.at = capacity() + at;
  images()[row] = image;
  files_[static_cast<std::size_t>(row)].assign(file.begin(), file.end());
  decoder_.store(on_host, std::memory_order_relaxed);
  return true;
}

void PixelStage::complete(std::int64_t row) {
  images()[row] = {};
  files_[static_cast<std::size_t>(row)].clear();
}

void PixelStage::clear(std::int64_t wanted) {
  const std::int64_t most = kMost * result_bytes_;
  if (wanted > capacity() && capacity() < most)
    make(std::min(std::max(wanted + wanted / 8, 2 * capacity()), most));
  for (std::int64_t row = 0; row < rows_; ++row) complete(row);
  used_.store(0, std::memory_order_relaxed);
  wanted_.store(0, std::memory_order_relaxed);
  decoded_.store(0, std::memory_order_relaxed);
}

}  // namespace athanor
