#include "trainer/flags/flags.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/ranges.h>

#include "tensor/base/nearest.h"
#include "trainer/flags/detail/settings_table.h"

namespace athanor {
namespace {

using read_flag::Text;

template <class T> T read_as(Text flag, Text text) {
  if constexpr (std::is_same_v<T, bool>) {
    return read_flag::Switch()(flag, text);
  } else if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return read_flag::path(flag, text);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return text;
  } else if constexpr (std::is_integral_v<T>) {
    return read_flag::number<T>(flag, text, "a whole number");
  } else {
    const auto value = read_flag::number<double>(flag, text, "a number");
    ATH_CHECK(std::isfinite(value), "{}: must be a finite number, but got {}", flag, text);
    ATH_CHECK(std::abs(value) <= std::numeric_limits<T>::max(), "{}: must fit into f32, but got {}", flag,
              text);
    return static_cast<T>(value);
  }
}

}  // namespace

void Flags::append(Flag flag) {
  const std::string name = flag.name();
  const bool plain =
      name.size() > 2 && name.starts_with("--") && std::all_of(name.begin() + 2, name.end(), [](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
      });
  ATH_CHECK(plain, "flags: a flag must be -- and letters, digits and dashes, but is '{}'", name);
  ATH_CHECK(
      std::none_of(flags_.begin(), flags_.end(), [&](const Flag& other) { return other.name() == name; }),
      "flags: {} must be added once, but is added again", name);
  flags_.push_back(std::move(flag));
}

template <class T> void Flags::add(const std::string& usage, T& target, const std::string& help) {
  const bool has_value = usage.find(' ') != usage.npos;
  if (std::is_same_v<T, bool>) {
    ATH_CHECK(!has_value, "flags: '{}' is a switch: it must have no value", usage);
  } else {
    ATH_CHECK(has_value, "flags: '{}' must name its value for --help, as in '{} N'", usage, usage);
  }
  append({.usage = usage,
          .help = help,
          .read = [&target](Text name, Text text) { target = read_as<T>(name, text); },
          .print = [&target] { return detail::printed(target); },
          .compared = !std::is_same_v<T, std::filesystem::path>});
}

template void Flags::add(const std::string&, std::int64_t&, const std::string&);
template void Flags::add(const std::string&, int&, const std::string&);
template void Flags::add(const std::string&, double&, const std::string&);
template void Flags::add(const std::string&, float&, const std::string&);
template void Flags::add(const std::string&, std::string&, const std::string&);
template void Flags::add(const std::string&, std::filesystem::path&, const std::string&);
template void Flags::add(const std::string&, bool&, const std::string&);

void Flags::add(const std::string& usage, std::string& target, const std::string& help,
                std::vector<std::string> choices) {
  add(usage, target, help);
  flags_.back().read = [&target, choices = std::move(choices)](Text name, Text text) {
    ATH_CHECK(std::find(choices.begin(), choices.end(), text) != choices.end(),
              "{}: must be one of {}, but got '{}'{}", name, fmt::join(choices, " "), text,
              did_you_mean(text, choices));
    target = text;
  };
}

}  // namespace athanor
