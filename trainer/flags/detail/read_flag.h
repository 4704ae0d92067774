#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/error.h"
#include "tensor/stream.h"
#include "trainer/config.h"

/// Parses the text of a flag. Each function throws ArgumentError naming the flag on invalid text.
namespace athanor::read_flag {

using Text = const std::string&;

/// Larger than any real count (steps, epochs, images), yet safe in sums and products of a few.
inline constexpr std::int64_t kMax = 1'000'000'000;

template <class T> T number(Text flag, Text text, const char* what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size(), "{}: must be {}, but got '{}'", flag,
            what, text);
  return value;
}

inline auto whole(std::int64_t low, std::int64_t high = kMax) {
  return [=](Text flag, Text text) {
    const auto value = number<std::int64_t>(flag, text, "a whole number");
    ATH_CHECK(value >= low, "{}: must be at least {}, but got {}", flag, low, value);
    ATH_CHECK(value <= high, "{}: must be at most {}, but got {}", flag, high, value);
    return value;
  };
}

/// A positive number; the default range is safe for products in f32.
inline auto positive(double low = 1e-30, double high = 1e30) {
  return [=](Text flag, Text text) {
    const auto value = number<double>(flag, text, "a number");
    ATH_CHECK(std::isfinite(value) && value > 0, "{}: must be a finite number above 0, but got {}", flag,
              text);
    ATH_CHECK(value >= low && value <= high, "{}: must be {} to {}, but got {}", flag, low, high, text);
    return value;
  };
}

/// `meant` for `word`, else the result of `read`.
template <class Read> auto word_or(const char* word, std::int64_t meant, Read read) {
  return [=](Text flag, Text text) { return text == word ? meant : read(flag, text); };
}

inline std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

/// One of these lower-case words, ignoring case: "AdamW" is adamw.
template <class T> auto one_of(const std::vector<std::pair<std::string, T>>& choices) {
  return [=](Text flag, Text text) {
    std::string words;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].first == lower_case(text)) return choices[i].second;
      words += (i == 0 ? "" : i + 1 < choices.size() ? ", " : " or ") + choices[i].first;
    }
    detail::fail<>("{}: must be {}, but got '{}'", flag, words, text);
  };
}

inline std::string path(Text flag, Text text) {
  ATH_CHECK(!text.empty(), "{}: must be a file or folder, but is empty", flag);
  return text;
}

/// PREFIX[:EPOCHS].
inline Freeze freeze(Text flag, Text text) {
  const std::size_t colon = text.rfind(':');
  Freeze freeze{.prefix = text.substr(0, colon)};
  ATH_CHECK(!freeze.prefix.empty(), "{}: must be a part of the network, or PREFIX:EPOCHS, but got '{}'", flag,
            text);
  if (colon != std::string::npos) freeze.epochs = whole(1)(flag, text.substr(colon + 1));
  return freeze;
}

/// Splits at a separator: "a,b,c" has three parts, "" one.
inline std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

/// Also true or false, as other trainers write it.
inline bool on_or_off(Text flag, Text text) {
  const std::string word = lower_case(text);
  if (word == "true" || word == "false") return word == "true";
  return one_of<bool>({{"on", true}, {"off", false}})(flag, text);
}

inline std::uint64_t seed(Text flag, Text text) {
  return number<std::uint64_t>(flag, text, "a whole number of at least 0");
}

inline double below_1(Text flag, Text text) {
  const double value = positive()(flag, text);
  ATH_CHECK(value < 1, "{}: must be below 1, but got {}", flag, text);
  return value;
}

inline std::chrono::milliseconds seconds(Text flag, Text text) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(positive(0.1, 86400)(flag, text) * 1000));
}

/// "500000000", "512M", "2GiB".
inline std::int64_t byte_count(Text flag, Text text) {
  static constexpr std::string_view kUnits = "kmgt";
  std::string unit = lower_case(text);
  const std::string digits = unit.substr(0, unit.find_first_not_of("0123456789"));
  unit.erase(0, digits.size());
  const std::size_t power = unit.empty() ? kUnits.npos : kUnits.find(unit[0]);
  if (power != kUnits.npos) unit.erase(0, 1);
  ATH_CHECK(!digits.empty() && (unit.empty() || unit == "b" || unit == "ib"),
            "{}: must be a number of bytes such as 500000000 or 2G, but got '{}'", flag, text);
  const int shift = power == kUnits.npos ? 0 : 10 * static_cast<int>(1 + power);
  return whole(1, std::int64_t{1} << (60 - shift))(flag, digits) << shift;
}

/// "METRIC:PATIENCE", "METRIC:PATIENCE:max", "METRIC:PATIENCE,min_delta=0.01,mode=max"; check() validates the
/// metric.
inline std::optional<Goal> take_goal(std::string& text) {
  std::optional<Goal> goal;
  if (text.ends_with(":min")) goal = Goal::minimum;
  if (text.ends_with(":max")) goal = Goal::maximum;
  if (goal) text.resize(text.size() - 4);
  return goal;
}
/// "min_delta=0.01" and the like.
inline void set_early_stop(EarlyStop& options, Text flag, Text text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals), value = text.substr(std::min(equals + 1, text.size()));
  if (name == "mode") {
    options.goal = one_of<Goal>({{"min", Goal::minimum}, {"max", Goal::maximum}})(flag, value);
    return;
  }
  ATH_CHECK(name == "min_delta" || name == "stop_at" || name == "diverge_at",
            "{}: must have min_delta, mode, stop_at or diverge_at after its comma, but got '{}'", flag, text);
  const auto number_of = number<double>(flag, value, "a number after '='");
  ATH_CHECK(std::isfinite(number_of) && (name != "min_delta" || number_of >= 0),
            "{}: must have a finite {}, and min_delta at least 0, but got '{}'", flag, name, text);
  if (name == "min_delta") options.min_delta = number_of;
  if (name == "stop_at") options.stop_at = number_of;
  if (name == "diverge_at") options.diverge_at = number_of;
}
inline EarlyStop early_stop(Text flag, Text text) {
  std::string rest = text.substr(0, text.find(','));
  const std::optional<Goal> goal = take_goal(rest);
  const std::size_t colon = rest.rfind(':');
  const std::string patience = colon == std::string::npos ? "" : rest.substr(colon + 1);
  ATH_CHECK(!patience.empty() && patience.find_first_not_of("-0123456789") == std::string::npos,
            "{}: must be METRIC:PATIENCE, METRIC:PATIENCE:min or METRIC:PATIENCE:max, as in val_loss:3, but "
            "got '{}'",
            flag, text);
  EarlyStop options{rest.substr(0, colon), whole(1)(flag, patience), goal};
  for (std::size_t comma = text.find(','); comma < text.size();) {
    const std::size_t next = std::min(text.find(',', comma + 1), text.size());
    set_early_stop(options, flag, text.substr(comma + 1, next - comma - 1));
    comma = next;
  }
  return options;
}

/// "val_loss", "val_psnr:max".
inline EarlyStop monitor(Text /*flag*/, Text text) {
  std::string metric = text;
  const std::optional<Goal> goal = take_goal(metric);
  return {metric, EarlyStop::kNever, goal};
}

/// "strict", "skip", "skip:20" or "list".
inline BadSamples bad_samples(Text flag, Text text) {
  if (text == "strict") return {};
  if (text == "list") return {.list = true};
  ATH_CHECK(text == "skip" || text.starts_with("skip:"),
            "{}: must be strict, skip, skip:LIMIT or list, but got '{}'", flag, text);
  BadSamples policy{.skip = true};
  if (text != "skip") policy.limit = whole(0)(flag, text.substr(5));
  return policy;
}

/// "500" steps or "5e" epochs, also fractions of epochs: "0.5e".
inline TrainingLength training_length(Text flag, Text text) {
  if (!text.ends_with("e")) {
    const auto steps = number<std::int64_t>(flag, text, "a number of steps, or of epochs as in 5e");
    return {static_cast<double>(whole(0)(flag, fmt::format("{}", steps))), false};
  }
  const auto epochs =
      number<double>(flag, text.substr(0, text.size() - 1), "a number of steps, or of epochs as in 5e");
  ATH_CHECK(epochs == 0 || (epochs >= 1e-9 && epochs <= 1e9), "{}: must be 0 to 1e9 epochs, but got {}", flag,
            text);
  return {epochs, true};
}

/// "10" batches, or "0.25" of them.
inline auto batch_limit(std::int64_t least) {
  return [=](Text flag, Text text) -> BatchLimit {
    if (text.find_first_of(".e") == std::string::npos) return {whole(least)(flag, text), 1};
    const double share = positive()(flag, text);
    ATH_CHECK(share <= 1, "{}: must be a number of batches, or a share of them up to 1.0, but got {}", flag,
              text);
    return {-1, share};
  };
}

/// "90" seconds, "12:30:00", "1:12:30:00" with days in front.
inline double max_time(Text flag, Text text) {
  ATH_CHECK(text.find_first_not_of("0123456789.:e+-") == std::string::npos,
            "{}: must be SECONDS, HH:MM:SS or DD:HH:MM:SS, but got '{}'", flag, text);
  if (text.find(':') == std::string::npos) return positive(1e-6, 1e9)(flag, text);
  double seconds = 0;
  int parts = 0;
  for (std::size_t begin = 0; begin <= text.size(); ++parts) {
    const std::size_t end = std::min(text.find(':', begin), text.size());
    const auto value = static_cast<double>(whole(0, 1'000'000)(flag, text.substr(begin, end - begin)));
    seconds = seconds * (parts == 1 && std::count(text.begin(), text.end(), ':') == 3 ? 24 : 60) + value;
    begin = end + 1;
  }
  ATH_CHECK(parts <= 4 && seconds > 0, "{}: must be SECONDS, HH:MM:SS or DD:HH:MM:SS, but got '{}'", flag,
            text);
  return seconds;
}

inline Precision precision(Text flag, Text text) {
  ATH_CHECK(text != "16-true" && text != "bf16-true",
            "{} {}: not supported (weights of 16 bits); use {}, with f32 master weights", flag, text,
            text == "16-true" ? "f16" : "bf16");
  const auto value = precision_named(lower_case(text));
  ATH_CHECK(value, "{}: must be f32, tf32, bf16 or f16, but got '{}'", flag, text);
  return *value;
}

/// "dynamic", "dynamic:65536" or "1024".
inline LossScaling loss_scaling(Text flag, Text text) {
  const bool dynamic = text.starts_with("dynamic");
  if (text == "dynamic") return {};
  ATH_CHECK(!dynamic || text[7] == ':', "{}: must be dynamic, dynamic:SCALE or a scale, but got '{}'", flag,
            text);
  const auto scale = static_cast<float>(positive(0x1p-32, 0x1p32)(flag, dynamic ? text.substr(8) : text));
  if (!dynamic) return LossScaling::fixed(scale);
  LossScaling scaling;
  ATH_CHECK(scale >= scaling.floor && scale <= scaling.ceiling, "{}: must begin in [{}, {}], but got {}",
            flag, scaling.floor, scaling.ceiling, scale);
  scaling.initial = scale;
  return scaling;
}

inline Strategy strategy(Text flag, Text text) {
  ATH_CHECK(text != "dp",
            "{} dp: not supported (one process that copies the model to every device in every step); use "
            "ddp, one process per device, with the same result",
            flag);
  const std::string name = lower_case(text);
  ATH_CHECK(
      !name.starts_with("fsdp") && !name.starts_with("deepspeed"),
      "{} {}: not supported (ranks that share the weights); use zero1, whose ranks share master weights "
      "and optimizer state",
      flag, text);
  ATH_CHECK(!name.starts_with("ddp_"), "{} {}: not supported; use ddp", flag, text);
  return one_of<Strategy>({{"auto", Strategy::automatic},
                           {"single", Strategy::single},
                           {"ddp", Strategy::ddp},
                           {"zero1", Strategy::zero1}})(flag, text);
}

inline Profile profile(Text flag, Text text) {
  return one_of<Profile>(
      {{"simple", Profile::simple}, {"advanced", Profile::advanced}, {"trace", Profile::trace}})(flag, text);
}

/// Whether other trainers would take it as the numbers of devices: "0,1", "[0, 1]".
inline bool is_list(const std::string& text) {
  return text.find_first_of(",[") != std::string::npos;
}

/// --devices; TrainerConfig::kAllDevices for "auto".
inline std::int64_t devices(Text flag, Text text) {
  ATH_CHECK(!is_list(text),
            "{}: must be the number of devices, but got '{}'; the environment variable CUDA_VISIBLE_DEVICES "
            "chooses which",
            flag, text);
  return word_or("auto", TrainerConfig::kAllDevices, whole(1, 1024))(flag, text);
}

/// The device that --device selects on this machine.
struct DeviceChoice {
  Device device;
  std::string note;  ///< for the user: which GPU it is, or why there is none
};

inline DeviceChoice automatic_device() {
  if (cuda_is_emulated()) return {kCpu, "this build only emulates CUDA"};
  std::string why_not;
  if (cuda_device_count() == 0) {  // without advice: no GPU was requested
    why_not = why_no_cuda();
    why_not.resize(std::min(why_not.find(": "), why_not.size()));
  }
  for (int i = 0; i < cuda_device_count(); ++i) {
    try {
      const Device device{DeviceType::cuda, static_cast<std::int16_t>(i)};
      return {device, device_info(device).name};
    } catch (const BackendError& error) {  // this build has no code for it
      if (why_not.empty()) why_not = error.what();
    }
  }
  return {kCpu, why_not};
}

/// "auto" (a GPU if there is one, else the CPU), "cpu", "cuda", "cuda:N", "N" or "gpu". Throws ArgumentError
/// on anything else and on a device unsupported by this build, BackendError if a GPU is requested but none is
/// visible.
inline DeviceChoice device(Text flag, Text text) {
  if (text == "auto") return automatic_device();
  ATH_CHECK(!is_list(text), "{}: must be one device, but got '{}'; use --devices N for several", flag, text);
  const bool number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  Device device;
  try {
    device = Device::parse(text == "gpu" ? "cuda" : number ? "cuda:" + text : text);
  } catch (const ArgumentError&) {
    detail::fail<>("{}: must be auto, cpu, cuda or cuda:N, but got '{}'", flag, text);
  }
  if (device.is_cpu()) return {device, ""};
  const int count = cuda_device_count();
  if (count == 0) {
    detail::fail<BackendError>("{} {}: {}", flag, text, why_no_cuda());
  }
  ATH_CHECK(device.index < count,
            "{}: must be one of the {} GPUs of this machine, cuda:0 to cuda:{}, but got {}", flag, count,
            count - 1, text);
  return {device, cuda_is_emulated() ? "emulated on the CPU: correct, not fast" : device_info(device).name};
}

}  // namespace athanor::read_flag
