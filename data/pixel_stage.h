#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/resize.h"
#include "tensor/tensor.h"

namespace athanor {

/// Host memory for the images of a batch, of different sizes, which a GPU scales to one: a StagedImage for
/// each row, then decoded pixels in any order. Images that the GPU decodes, too, are kept as files; their
/// pixels have places beyond the others, on the device alone.
///
/// There is room for pixels of twice the bytes of the scaled images at first, and of kMost times at most.
/// Images that find none are scaled on the host.
class PixelStage {
 public:
  /// Decodes a file on the CPU, to height x width x 3 bytes of RGB, as stored. Throws IoError.
  using HostDecoder = void (*)(std::span<const std::byte> file, std::uint8_t* to);

  static constexpr std::int64_t kFirst = 2, kMost = 8;

  /// For `rows` images that are scaled to `image_bytes` each. `pinned`: in page-locked memory.
  PixelStage(std::int64_t rows, std::int64_t image_bytes, bool pinned);

  /// Room for the pixels of `image`, whose field `at` does not matter, and makes it the row's. Null if there
  /// is none, or its axes have too many taps; then the row is complete. Thread-safe for different rows.
  std::uint8_t* take(std::int64_t row, kernels::StagedImage image);
  /// The same for a JPEG file of that image, which is copied. False if there is no room. `on_host` is for
  /// files that a GPU refuses, the same in all calls.
  bool take_file(std::int64_t row, kernels::StagedImage image, std::span<const std::byte> file,
                 HostDecoder on_host);
  /// The row gets its pixels otherwise.
  void complete(std::int64_t row);

  /// Makes all rows complete, and room for a batch that asks for `wanted` bytes. No thread may be using it;
  /// queued copies may.
  void clear(std::int64_t wanted);
  /// Bytes of pixels that take() was asked for since clear().
  std::int64_t wanted() const { return wanted_.load(std::memory_order_relaxed); }

  const kernels::StagedImage& image(std::int64_t row) const { return images()[row]; }
  /// The file of a row; empty if it has none.
  std::span<const std::byte> file(std::int64_t row) const { return files_[static_cast<std::size_t>(row)]; }
  HostDecoder decoder() const { return decoder_.load(std::memory_order_relaxed); }
  /// All of it: [bytes] u8.
  const Tensor& memory() const { return memory_; }
  /// Bytes of memory() before the pixels.
  std::int64_t pixels_at() const { return pixels_at_; }
  /// Bytes of memory() in use.
  std::int64_t used() const { return pixels_at_ + used_.load(std::memory_order_relaxed); }
  /// Bytes of pixels that will be decoded behind memory().
  std::int64_t decoded() const { return decoded_.load(std::memory_order_relaxed); }

 private:
  kernels::StagedImage* images() const;
  std::int64_t capacity() const { return memory_.numel() - pixels_at_; }
  void make(std::int64_t capacity);

  std::int64_t rows_, result_bytes_;  // of all rows
  std::int64_t pixels_at_;
  bool pinned_;
  Tensor memory_;
  std::vector<std::vector<std::byte>> files_;
  std::atomic<HostDecoder> decoder_{nullptr};
  std::atomic<std::int64_t> used_{0}, wanted_{0}, decoded_{0};
};

}  // namespace athanor
