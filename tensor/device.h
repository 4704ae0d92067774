#pragma once

#include <compare>
#include <cstdint>
#include <string>

namespace athanor {

/// The kinds of devices.
enum class DeviceType : std::uint8_t { cpu, cuda };

/// Where a tensor's bytes are: on the host, or on one CUDA device.
struct Device {
  DeviceType type = DeviceType::cpu;
  std::int16_t index = 0;

  auto operator<=>(const Device&) const = default;

  bool is_cpu() const { return type == DeviceType::cpu; }
  bool is_cuda() const { return type == DeviceType::cuda; }

  /// "cpu", "cuda:0"; "simt:0" if the device is emulated.
  std::string str() const;
  /// Parses "cpu", "cuda" or "cuda:N"; also "simt" or "simt:N" if the device is emulated. Throws
  /// ArgumentError on any other text.
  static Device parse(const std::string& text);
};

/// The host.
inline constexpr Device kCpu{};

}  // namespace athanor
