#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "tensor/stream.h"

namespace athanor {

/// Decodes JPEG files on a GPU. For one loader, whose threads then only read files.
class DeviceJpeg {
 public:
  /// A file, and memory of the device for its pixels: height x width x 3 bytes of RGB, dense, as stored.
  struct Job {
    std::span<const std::byte> file;
    std::uint8_t* to = nullptr;
    std::int64_t height = 0, width = 0;
  };

  DeviceJpeg() = default;
  virtual ~DeviceJpeg() = default;
  DeviceJpeg(const DeviceJpeg&) = delete;
  DeviceJpeg& operator=(const DeviceJpeg&) = delete;

  /// Queues the decoding of files that JpegDecoder::is_plain() accepts, on the current stream. Files must
  /// stay until it is done. Throws IoError if it cannot decode one of them; then no queued work
  /// reads them any more.
  virtual void decode(std::span<const Job> jobs) = 0;
};

/// By nvJPEG, with the GPU's decoding engines if it has any. Pixels differ from the CPU's in the last bits,
/// and between GPUs. Throws ArgumentError, with the reason, if this build or machine cannot.
std::unique_ptr<DeviceJpeg> make_device_jpeg(Device device);

}  // namespace athanor
