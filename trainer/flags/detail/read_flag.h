#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "tensor/base/error.h"
#include "trainer/config.h"

namespace athanor {

/// Values as their flags write them, for help texts, messages and checkpoints; "" or "none" where unset.
std::string text(const std::optional<LossScaling>& scaling);
std::string text(const std::optional<EarlyStop>& stop);
std::string text(const std::vector<Freeze>& parts);
std::string text(const std::vector<SizeFrom>& sizes);
/// "224", or "192x320"; of no size, "0".
std::string text(const ImageSize& size);
std::string text(const Augment& augment);
std::string text(const BatchLimit& limit);
std::string text(const TaskLoss& loss);
std::string text(const ClassWeights& weights);

/// Parses the text of a flag. Each function throws ArgumentError naming the flag on invalid text.
namespace read_flag {

using Text = const std::string&;

/// Larger than any real count (steps, epochs, images), yet safe in sums and products of a few.
inline constexpr std::int64_t kMax = 1'000'000'000;

std::string lower_case(std::string text);
/// Splits at a separator: "a,b,c" has three parts, "" one.
std::vector<std::string> split(const std::string& text, char at);

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

/// Whether it says that a setting is off: "none", or a zero.
bool is_off(Text text);

/// Reads what is_off() as `off`, and other texts by `read`.
template <class T, class Read> auto or_off(T off, Read read) {
  return [=](Text flag, Text text) { return is_off(text) ? off : static_cast<T>(read(flag, text)); };
}

/// Reads `word` as `meant` and other texts by `read`; prints `meant` as `word`.
template <class Read> struct WordOr {
  std::string word;
  std::int64_t meant;
  Read read;

  std::int64_t operator()(Text flag, Text text) const { return text == word ? meant : read(flag, text); }
  std::string print(std::int64_t value) const { return value == meant ? word : fmt::to_string(value); }
};
template <class Read> WordOr(std::string, std::int64_t, Read) -> WordOr<Read>;

/// One of these lower-case words, ignoring case: "AdamW" is adamw.
template <class T> struct OneOf {
  std::vector<std::pair<std::string, T>> choices;

  T operator()(Text flag, Text text) const {
    std::string words;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      if (choices[i].first == lower_case(text)) return choices[i].second;
      words += (i == 0 ? "" : i + 1 < choices.size() ? ", " : " or ") + choices[i].first;
    }
    detail::fail<>("{}: must be {}, but got '{}'", flag, words, text);
  }
  std::string print(const T& value) const {
    for (const auto& [word, meant] : choices)
      if (meant == value) return word;
    return {};
  }
};

/// Values by their name_of().
template <class T> OneOf<T> named(std::initializer_list<T> values) {
  OneOf<T> all;
  for (const T value : values) all.choices.emplace_back(name_of(value), value);
  return all;
}

/// Also true or false, as other trainers write it.
struct OnOrOff {
  bool operator()(Text flag, Text text) const;
  std::string print(bool value) const { return value ? "on" : "off"; }
};

/// A flag without a value: "true" where it is given; also 1 or 0.
struct Switch {
  bool operator()(Text flag, Text text) const {
    return text == "1" || (text != "0" && OnOrOff()(flag, text));
  }
};

std::string path(Text flag, Text text);
std::uint64_t seed(Text flag, Text text);
double below_1(Text flag, Text text);
/// In [0, 1).
double share(Text flag, Text text);
double not_negative(Text flag, Text text);
std::chrono::milliseconds seconds(Text flag, Text text);
/// "500000000", "512M", "1.5GiB".
std::int64_t byte_count(Text flag, Text text);
/// PREFIX[:EPOCHS].
Freeze freeze(Text flag, Text text);
/// "160:0,192:10": sides in pixels, and the epochs from which they hold.
std::vector<SizeFrom> image_sizes(Text flag, Text text);
/// "METRIC:PATIENCE", "METRIC:PATIENCE:max", "METRIC:PATIENCE,min_delta=0.01,mode=max"; check() validates the
/// metric.
EarlyStop early_stop(Text flag, Text text);
/// "none", "balanced" or "cat=2,dog=0.5".
ClassWeights class_weights(Text flag, Text text);
/// "bce", "focal:2:0.25", "huber:1".
TaskLoss task_loss(Text flag, Text text);
/// "val_loss", "val_psnr:max".
EarlyStop monitor(Text flag, Text text);
/// "strict", "skip", "skip:20" or "list".
BadSamples bad_samples(Text flag, Text text);
/// "500" steps or "5e" epochs, also fractions of epochs: "0.5e".
TrainingLength training_length(Text flag, Text text);
/// "10" batches, or "0.25" of them.
BatchLimit batch_limit(Text flag, Text text, std::int64_t least);
/// "90" seconds, "12:30:00", "1:12:30:00" with days in front.
double max_time(Text flag, Text text);
Precision precision(Text flag, Text text);
/// The same of predictions: without "tf32".
Precision prediction_precision(Text flag, Text text);
/// "dynamic", "dynamic:65536" or "1024".
LossScaling loss_scaling(Text flag, Text text);
/// "constant", "step:30", "multistep:30,60:0.2", "plateau:5:0.5", ...
ScheduleOptions schedule(Text flag, Text text);
/// "224" pixels a side, or "192x320", height x width.
ImageSize image_size(Text flag, Text text);
/// "none", "flip,crop:4:reflect,mixup", ...
Augment augment(Text flag, Text text);
/// "none", "flip" or "six".
inline OneOf<TestViews> test_views() {
  OneOf<TestViews> all;
  for (const TestViews views : kAllTestViews) all.choices.emplace_back(name_of(views), views);
  return all;
}
/// --devices; TrainerConfig::kAllDevices for "auto".
std::int64_t devices(Text flag, Text text);

/// The device that --device selects on this machine.
struct DeviceChoice {
  Device device;
  std::string note;  ///< for the user: which GPU it is, or why there is none
};
/// "auto" (a GPU if there is one, else the CPU), "cpu", "cuda", "cuda:N", "N" or "gpu". Throws ArgumentError
/// on anything else and on a device unsupported by this build, BackendError if a GPU is requested but none is
/// visible.
DeviceChoice device(Text flag, Text text);

}  // namespace read_flag
}  // namespace athanor
