#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <string>

namespace athanor::test {

inline std::int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  return -1;
}

/// By how many bytes the memory of this process grows, at most, while `run` runs; -1 where the system does
/// not say.
inline std::int64_t peak_growth(const std::function<void()>& run) {
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;  // the peak begins anew
  const bool known = reset.good();
  const std::int64_t before = status_bytes("VmRSS");
  run();
  return known ? status_bytes("VmHWM") - before : -1;
}

}  // namespace athanor::test
