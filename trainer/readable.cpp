#include "trainer/readable.h"

#include <cmath>

#include <fmt/format.h>

namespace athanor {

std::string with_commas(std::int64_t number) {
  const std::string digits = std::to_string(number < 0 ? 0 - static_cast<std::uint64_t>(number)
                                                       : static_cast<std::uint64_t>(number));
  std::string text = number < 0 ? "-" : "";
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

double rounded_rate(double per_second) {
  if (!(per_second > 0) || per_second >= 99.95) return std::round(per_second);
  const double scale = std::pow(10.0, 2 - std::floor(std::log10(per_second)));
  return std::round(per_second * scale) / scale;
}

std::string rate(double per_second) {
  const double rounded = rounded_rate(per_second);
  return rounded >= 100 ? with_commas(std::llround(rounded)) : fmt::format("{}", rounded);
}

std::string duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto whole = std::llround(seconds);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string byte_size(double bytes) {
  return bytes < 1e6   ? fmt::format("{:.1f} kB", bytes / 1e3)
         : bytes < 1e9 ? fmt::format("{:.1f} MB", bytes / 1e6)
                       : fmt::format("{:.2f} GB", bytes / 1e9);
}

}  // namespace athanor
