#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include <unistd.h>

#include "bench/support/bench.h"
#include "data/formats/packed_writer.h"

namespace athanor::bench {

inline std::span<const std::byte> bytes_of(const Tensor& x) {
  return {reinterpret_cast<const std::byte*>(x.data<std::uint8_t>()), static_cast<std::size_t>(x.numel())};
}

/// A packed file of as many raw images as CIFAR-10 has, of their size, that goes with the last row that uses
/// it.
struct PackedImages {
  static constexpr std::int64_t kCount = 50'000, kSide = 32, kClasses = 10;
  static constexpr std::size_t kImageBytes = kSide * kSide * 3;

  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("athanor-bench-" + std::to_string(::getpid()) + ".athp");
  Tensor pixels = filled({kCount, kSide, kSide, 3}, DType::u8, 0, 256);

  PackedImages() {
    PackedWriter writer(path, {.classes = kClasses});
    for (std::int64_t i = 0; i < kCount; ++i)
      writer.add({image(i), Codec::raw, kSide, kSide, 3, i % kClasses});
    writer.finish();
  }
  ~PackedImages() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  PackedImages(const PackedImages&) = delete;
  PackedImages& operator=(const PackedImages&) = delete;

  /// The one there is, or a new one.
  static std::shared_ptr<PackedImages> shared() {
    static std::weak_ptr<PackedImages> kept;
    const auto images = kept.lock() ? kept.lock() : std::make_shared<PackedImages>();
    kept = images;
    return images;
  }

  std::span<const std::byte> image(std::int64_t i) const {
    return bytes_of(pixels).subspan(static_cast<std::size_t>(i) * kImageBytes, kImageBytes);
  }
};

}  // namespace athanor::bench
