#include "trainer/choose_device.h"

#include "tensor/error.h"
#include "tensor/stream.h"

namespace athanor {
namespace {

/// What is the matter, of "what is the matter: what to do about it": nobody has asked for a GPU.
std::string matter(const std::string& why) {
  return why.substr(0, why.find(": "));
}

DeviceChoice automatic() {
  if (cuda_is_emulated()) return {kCpu, "this build only emulates CUDA"};
  if (cuda_device_count() == 0) return {kCpu, matter(why_no_cuda())};
  std::string why_not;
  for (std::int16_t i = 0; i < cuda_device_count(); ++i) {
    try {
      const Device device{DeviceType::cuda, i};
      return {device, device_info(device).name};
    } catch (const BackendError& error) {  // this build has no code for it
      if (why_not.empty()) why_not = error.what();
    }
  }
  return {kCpu, why_not};
}

Device parse(const std::string& text) {
  try {
    return Device::parse(text);
  } catch (const ArgumentError&) {
    detail::fail<>("--device: must be auto, cpu, cuda or cuda:N, but got '{}'", text);
  }
}

}  // namespace

DeviceChoice choose_device(const std::string& text) {
  if (text == "auto") return automatic();
  const Device device = parse(text == "gpu" ? "cuda" : text);
  if (device.is_cpu()) return {device, ""};
  const int count = cuda_device_count();
  if (count == 0) {
    detail::fail<BackendError>("--device {}: {}", text, why_no_cuda());
  }
  ATH_CHECK(device.index < count, "--device: must be one of the {} here, cuda:0 to cuda:{}, but got {}",
            count, count - 1, text);
  return {device, cuda_is_emulated() ? "emulated on the CPU: correct, not fast" : device_info(device).name};
}

}  // namespace athanor
