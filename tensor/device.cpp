#include "tensor/device.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "tensor/base/error.h"
#include "tensor/detail/device_memory.h"

namespace athanor {

std::string Device::str() const {
  return is_cpu() ? "cpu" : fmt::format("{}:{}", detail::cuda_device_name(), index);
}

Device Device::parse(const std::string& text) {
  if (text == "cpu") return kCpu;
  const std::string_view own = detail::cuda_device_name();
  for (const std::string_view name : {std::string_view("cuda"), own}) {
    if (text == name) return {DeviceType::cuda, 0};
    if (!text.starts_with(fmt::format("{}:", name))) continue;
    const std::string digits = text.substr(name.size() + 1);
    if (!digits.empty() && digits.size() <= 3 &&
        std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return {DeviceType::cuda, static_cast<std::int16_t>(std::stoi(digits))};
  }
  detail::fail<>("device: must be cpu, {} or {}:N, but got '{}'", own, own, text);
}

}  // namespace athanor
