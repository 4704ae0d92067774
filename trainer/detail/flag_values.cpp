#include "trainer/detail/flag_values.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "tensor/error.h"

namespace athanor::flag_values {
namespace {

template <class T> T number(const std::string& flag, const std::string& text, const char* what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size(), "{}: must be {}, but got '{}'", flag,
            what, text);
  return value;
}

}  // namespace

std::int64_t whole(const std::string& flag, const std::string& text, std::int64_t low, std::int64_t high) {
  const auto value = number<std::int64_t>(flag, text, "a whole number");
  ATH_CHECK(value >= low, "{}: must be at least {}, but got {}", flag, low, value);
  ATH_CHECK(value <= high, "{}: must be at most {}, but got {}", flag, high, value);
  return value;
}

int between(const std::string& flag, const std::string& text, int low, int high) {
  return static_cast<int>(whole(flag, text, low, high));
}

double positive(const std::string& flag, const std::string& text, double low, double high) {
  const auto value = number<double>(flag, text, "a number");
  ATH_CHECK(std::isfinite(value) && value > 0, "{}: must be a finite number above 0, but got {}", flag, text);
  ATH_CHECK(value >= low && value <= high, "{}: must be {} to {}, but got {}", flag, low, high, text);
  return value;
}

std::uint64_t seed(const std::string& flag, const std::string& text) {
  return number<std::uint64_t>(flag, text, "a whole number of at least 0");
}

std::int64_t byte_count(const std::string& flag, const std::string& text) {
  const std::size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  std::string unit = text.substr(digits);
  for (char& c : unit) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (unit.ends_with("IB")) unit.resize(unit.size() - 2);
  if (unit.ends_with("B")) unit.pop_back();
  const std::string_view units = "KMGT";
  ATH_CHECK(digits > 0 && (unit.empty() || (unit.size() == 1 && units.find(unit) != units.npos)),
            "{}: must be a number of bytes such as 500000000 or 2G, but got '{}'", flag, text);
  const std::size_t power = unit.empty() ? 0 : units.find(unit) + 1;
  const auto count = number<std::int64_t>(flag, text.substr(0, digits), "a number of bytes");
  ATH_CHECK(count > 0 && count < (std::int64_t{1} << 60 >> (10 * power)),
            "{}: must be a number of bytes this machine can have, but got '{}'", flag, text);
  return count << (10 * power);
}

EarlyStop early_stop(const std::string& flag, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  ATH_CHECK(colon != std::string::npos, "{}: must be METRIC:PATIENCE, as in val_loss:3, but got '{}'", flag,
            text);
  return {text.substr(0, colon), whole(flag, text.substr(colon + 1), 1)};
}

int workers(const std::string& flag, const std::string& text) {
  if (text == "auto") return LoaderOptions::kAuto;
  return between(flag, text, 0, 1024);
}

BadSamples bad_samples(const std::string& flag, const std::string& text) {
  if (text == "strict") return {};
  ATH_CHECK(text == "skip" || text.starts_with("skip:"),
            "{}: must be strict, skip or skip:LIMIT, but got '{}'", flag, text);
  BadSamples policy{.skip = true};
  if (text != "skip") policy.limit = whole(flag, text.substr(5), 0);
  return policy;
}

Strategy strategy(const std::string& flag, const std::string& text) {
  ATH_CHECK(text != "dp",
            "{} dp: one process that copies the model to every device in every step is not offered; use ddp, "
            "one process per device, with the same result",
            flag);
  for (const Strategy known : {Strategy::single, Strategy::ddp, Strategy::zero1}) {
    if (text == name_of(known)) return known;
  }
  detail::fail<>("{}: must be single, ddp or zero1, but got '{}'", flag, text);
}

dist::Algorithm algorithm(const std::string& flag, const std::string& text) {
  using dist::Algorithm;
  for (const auto known : {Algorithm::automatic, Algorithm::rank_order, Algorithm::ring,
                           Algorithm::hierarchical, Algorithm::native}) {
    if (text == name_of(known)) return known;
  }
  detail::fail<>("{}: must be auto, rank_order, ring, hierarchical or native, but got '{}'", flag, text);
}

bool on_or_off(const std::string& flag, const std::string& text) {
  ATH_CHECK(text == "on" || text == "off", "{}: must be on or off, but got '{}'", flag, text);
  return text == "on";
}

Precision precision(const std::string& flag, const std::string& text) {
  const auto value = precision_named(text);
  ATH_CHECK(value, "{}: must be f32, tf32, bf16 or f16, but got '{}'", flag, text);
  return *value;
}

LossScaling loss_scaling(const std::string& flag, const std::string& text) {
  const bool dynamic = text.starts_with("dynamic");
  if (text == "dynamic") return {};
  ATH_CHECK(!dynamic || text[7] == ':', "{}: must be dynamic, dynamic:SCALE or a scale, but got '{}'", flag,
            text);
  const auto scale = static_cast<float>(positive(flag, dynamic ? text.substr(8) : text, 0x1p-32, 0x1p32));
  if (!dynamic) return LossScaling::fixed(scale);
  LossScaling scaling;
  ATH_CHECK(scale >= scaling.floor && scale <= scaling.ceiling, "{}: must begin in [{}, {}], but got {}",
            flag, scaling.floor, scaling.ceiling, scale);
  scaling.initial = scale;
  return scaling;
}

}  // namespace athanor::flag_values
