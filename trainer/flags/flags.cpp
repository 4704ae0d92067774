#include "trainer/flags/flags.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/ranges.h>

#include "tensor/nearest.h"
#include "trainer/flags/detail/read_flag.h"

namespace athanor {
namespace {

using read_flag::Text;

double finite(Text flag, Text text) {
  const auto value = read_flag::number<double>(flag, text, "a number");
  ATH_CHECK(std::isfinite(value), "{}: must be a finite number, but got {}", flag, text);
  return value;
}

template <class T> std::string text_of(const T& value) {
  if constexpr (std::is_same_v<T, std::filesystem::path>)
    return value.string();
  else
    return fmt::format("{}", value);
}

}  // namespace

void Flags::append(const std::string& usage, Flag flag) {
  const std::size_t space = usage.find(' ');
  flag.name = usage.substr(0, space);
  if (space != usage.npos) flag.value = usage.substr(space + 1);
  const bool plain = flag.name.size() > 2 && flag.name.starts_with("--") &&
                     std::all_of(flag.name.begin() + 2, flag.name.end(),
                                 [](unsigned char c) { return std::isalnum(c) != 0 || c == '-'; });
  ATH_CHECK(plain, "flags: a flag must be -- and letters, digits and dashes, but is '{}'", flag.name);
  const auto known = [&](const Flag& other) { return other.name == flag.name; };
  ATH_CHECK(std::none_of(flags_.begin(), flags_.end(), known),
            "flags: {} must be added once, but is added again", flag.name);
  flags_.push_back(std::move(flag));
}

template <class T, class Read>
void Flags::take(const std::string& usage, T& target, const std::string& help, const Read& read) {
  ATH_CHECK(usage.find(' ') != usage.npos, "flags: '{}' must name its value for --help, as in '{} N'", usage,
            usage);
  const std::string name = usage.substr(0, usage.find(' '));
  Flag flag;
  flag.help = fmt::format(fmt::runtime(help), text_of(target));
  flag.read = [&target, read, name](const std::string& text) { target = static_cast<T>(read(name, text)); };
  if constexpr (!std::is_same_v<T, std::filesystem::path>) flag.text = [&target] { return text_of(target); };
  append(usage, std::move(flag));
}

void Flags::add(const std::string& usage, std::int64_t& target, const std::string& help) {
  take(usage, target, help,
       [](Text flag, Text text) { return read_flag::number<std::int64_t>(flag, text, "a whole number"); });
}

void Flags::add(const std::string& usage, int& target, const std::string& help) {
  take(usage, target, help,
       [](Text flag, Text text) { return read_flag::number<int>(flag, text, "a whole number"); });
}

void Flags::add(const std::string& usage, double& target, const std::string& help) {
  take(usage, target, help, finite);
}

void Flags::add(const std::string& usage, float& target, const std::string& help) {
  take(usage, target, help, [](Text flag, Text text) {
    const double value = finite(flag, text);
    ATH_CHECK(std::abs(value) <= std::numeric_limits<float>::max(), "{}: must fit into f32, but got {}", flag,
              text);
    return value;
  });
}

void Flags::add(const std::string& usage, std::string& target, const std::string& help) {
  take(usage, target, help, [](Text, Text text) { return text; });
}

void Flags::add(const std::string& usage, std::filesystem::path& target, const std::string& help) {
  take(usage, target, help, read_flag::path);
}

void Flags::add(const std::string& usage, std::string& target, const std::string& help,
                std::vector<std::string> choices) {
  take(usage, target, help, [choices = std::move(choices)](Text flag, Text text) {
    ATH_CHECK(std::find(choices.begin(), choices.end(), text) != choices.end(),
              "{}: must be one of {}, but got '{}'{}", flag, fmt::join(choices, " "), text,
              did_you_mean(text, choices));
    return text;
  });
}

void Flags::add(const std::string& flag, bool& target, const std::string& help) {
  ATH_CHECK(flag.find(' ') == flag.npos, "flags: '{}' is a switch: it must have no value", flag);
  append(flag, {.help = help,
                .read = [&target](const std::string&) { target = true; },
                .text = [&target] { return std::string(target ? "true" : "false"); }});
}

}  // namespace athanor
