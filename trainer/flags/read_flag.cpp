// The texts of flags as values, and back.

#include "trainer/flags/detail/read_flag.h"

#include <algorithm>
#include <cctype>

#include <fmt/ranges.h>

#include "tensor/stream.h"

namespace athanor {

std::string text(const std::optional<LossScaling>& scaling) {
  if (!scaling) return "automatic";
  if (scaling->is_fixed()) return fmt::format("{}", scaling->initial);
  return fmt::format("dynamic from {} in [{}, {}], times {} after {} steps, times {}", scaling->initial,
                     scaling->floor, scaling->ceiling, scaling->growth, scaling->growth_interval,
                     scaling->backoff);
}

std::string text(const std::optional<EarlyStop>& stop) {
  if (!stop) return "none";
  const char* const goal = !stop->goal ? "" : stop->goal == Goal::minimum ? ":min" : ":max";
  if (stop->patience == EarlyStop::kNever) return fmt::format("{}{} (--monitor)", stop->metric, goal);
  std::string all = fmt::format("{}:{}{}", stop->metric, stop->patience, goal);
  if (stop->min_delta != 0) all += fmt::format(",min_delta={}", stop->min_delta);
  if (stop->stop_at) all += fmt::format(",stop_at={}", *stop->stop_at);
  if (stop->diverge_at) all += fmt::format(",diverge_at={}", *stop->diverge_at);
  return all;
}

std::string text(const std::vector<Freeze>& parts) {
  std::vector<std::string> all;
  for (const Freeze& one : parts)
    all.push_back(one.epochs == Freeze::kAlways ? one.prefix : fmt::format("{}:{}", one.prefix, one.epochs));
  return fmt::format("{}", fmt::join(all, " "));
}

std::string text(const ImageSize& size) {
  return size.height == size.width ? fmt::to_string(size.height)
                                   : fmt::format("{}x{}", size.height, size.width);
}

std::string text(const std::vector<SizeFrom>& sizes) {
  std::vector<std::string> all;
  for (const SizeFrom& one : sizes) all.push_back(fmt::format("{}:{}", text(one.size), one.epoch));
  return fmt::format("{}", fmt::join(all, ","));
}

std::string text(const BatchLimit& limit) {
  return limit.count >= 0   ? fmt::to_string(limit.count)
         : limit.share == 1 ? "all"
                            : fmt::format("{}", limit.share);
}

std::string text(const ClassWeights& weights) {
  if (weights.balanced) return "balanced";
  if (weights.of.empty()) return "none";
  std::vector<std::string> all;
  for (const auto& [name, weight] : weights.of) all.push_back(fmt::format("{}={}", name, weight));
  return fmt::format("{}", fmt::join(all, ","));
}

std::string text(const TaskLoss& loss) {
  switch (loss.kind) {
    case LossKind::usual: return "";
    case LossKind::focal: return fmt::format("focal:{}:{}", loss.gamma, loss.alpha);
    case LossKind::huber: return fmt::format("huber:{}", loss.delta);
    default: return std::string(name_of(loss.kind));
  }
}

namespace read_flag {

std::string lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_off(Text text) {
  double value = 1;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, value);
  return text == "none" || (error == std::errc() && behind == end && value == 0);
}

bool OnOrOff::operator()(Text flag, Text text) const {
  const std::string word = lower_case(text);
  if (word == "true" || word == "false") return word == "true";
  return OneOf<bool>{{{"on", true}, {"off", false}}}(flag, text);
}

std::string path(Text flag, Text text) {
  ATH_CHECK(!text.empty(), "{}: must be a file or folder, but is empty", flag);
  return text;
}

std::uint64_t seed(Text flag, Text text) {
  return number<std::uint64_t>(flag, text, "a whole number of at least 0");
}

double below_1(Text flag, Text text) {
  const double value = positive()(flag, text);
  ATH_CHECK(value < 1, "{}: must be below 1, but got {}", flag, text);
  return value;
}

double share(Text flag, Text text) {
  const auto value = number<double>(flag, text, "a number");
  ATH_CHECK(value == 0 || (value >= 1e-30 && value < 1), "{}: must be in [0, 1), but got {}", flag, text);
  return value;
}

double not_negative(Text flag, Text text) {
  const auto value = number<double>(flag, text, "a number");
  ATH_CHECK(value == 0 || (value >= 1e-30 && value <= 1e15), "{}: must be 0 to 1e15, but got {}", flag, text);
  return value;
}

std::chrono::milliseconds seconds(Text flag, Text text) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(positive(0.1, 86400)(flag, text) * 1000));
}

std::int64_t byte_count(Text flag, Text text) {
  static constexpr std::string_view kUnits = "kmgt";
  std::string unit = lower_case(text);
  const std::string digits = unit.substr(0, unit.find_first_not_of("0123456789."));
  unit.erase(0, digits.size());
  const std::size_t power = unit.empty() ? kUnits.npos : kUnits.find(unit[0]);
  if (power != kUnits.npos) unit.erase(0, 1);
  ATH_CHECK(!digits.empty() && (unit.empty() || unit == "b" || unit == "ib"),
            "{}: must be a number of bytes such as 500000000 or 2G, but got '{}'", flag, text);
  const int shift = power == kUnits.npos ? 0 : 10 * static_cast<int>(1 + power);
  if (digits.find('.') == std::string::npos)
    return whole(1, std::int64_t{1} << (60 - shift))(flag, digits) << shift;
  const double bytes = std::ldexp(number<double>(flag, digits, "a number of bytes such as 1.5G"), shift);
  ATH_CHECK(bytes >= 1 && bytes <= 0x1p60, "{}: must be 1 byte to 2^60, but got '{}'", flag, text);
  return static_cast<std::int64_t>(bytes);
}

Freeze freeze(Text flag, Text text) {
  const std::size_t colon = text.rfind(':');
  Freeze freeze{.prefix = text.substr(0, colon)};
  ATH_CHECK(!freeze.prefix.empty(), "{}: must be a part of the network, or PREFIX:EPOCHS, but got '{}'", flag,
            text);
  if (colon != std::string::npos) freeze.epochs = whole(1)(flag, text.substr(colon + 1));
  return freeze;
}

std::vector<SizeFrom> image_sizes(Text flag, Text text) {
  std::vector<SizeFrom> sizes;
  for (const std::string& one : split(text, ',')) {
    const std::size_t colon = one.find(':');
    ATH_CHECK(colon != std::string::npos,
              "{}: must name the epoch from which each size holds, as in 160:0,192:10, but got '{}'", flag,
              text);
    sizes.push_back({image_size(flag, one.substr(0, colon)), whole(0)(flag, one.substr(colon + 1))});
  }
  return sizes;
}

namespace {

const OneOf<Goal> kGoals{{{"min", Goal::minimum}, {"max", Goal::maximum}}};

/// Takes ":min" or ":max" from the end of `text`.
std::optional<Goal> take_goal(std::string& text) {
  for (const auto& [word, goal] : kGoals.choices) {
    if (!text.ends_with(":" + word)) continue;
    text.resize(text.size() - word.size() - 1);
    return goal;
  }
  return std::nullopt;
}

/// "min_delta=0.01" and the like.
void set_early_stop(EarlyStop& options, Text flag, Text text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  const std::string name = text.substr(0, equals), value = text.substr(std::min(equals + 1, text.size()));
  if (name == "mode") {
    options.goal = kGoals(flag, value);
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

}  // namespace

EarlyStop early_stop(Text flag, Text text) {
  const std::vector<std::string> parts = split(text, ',');
  std::string rest = parts[0];
  const std::optional<Goal> goal = take_goal(rest);
  const std::size_t colon = rest.rfind(':');
  const std::string patience = colon == std::string::npos ? "" : rest.substr(colon + 1);
  ATH_CHECK(!patience.empty() && patience.find_first_not_of("-0123456789") == std::string::npos,
            "{}: must be METRIC:PATIENCE, METRIC:PATIENCE:min or METRIC:PATIENCE:max, as in val_loss:3, but "
            "got '{}'",
            flag, text);
  EarlyStop options{rest.substr(0, colon), whole(1)(flag, patience), goal};
  for (std::size_t i = 1; i < parts.size(); ++i) set_early_stop(options, flag, parts[i]);
  return options;
}

ClassWeights class_weights(Text flag, Text text) {
  if (text == "none") return {};
  if (text == "balanced") return {.balanced = true};
  ClassWeights weights;
  for (const std::string& part : split(text, ',')) {
    const std::size_t at = part.rfind('=');
    ATH_CHECK(at != std::string::npos && at > 0,
              "{}: must be none or balanced, or NAME=WEIGHT of classes, as in cat=2,dog=0.5, but got '{}'",
              flag, text);
    const std::string name = part.substr(0, at);
    const bool is_new = std::ranges::none_of(weights.of, [&](const auto& one) { return one.first == name; });
    ATH_CHECK(is_new, "{}: must name each class once, but names '{}' twice", flag, name);
    const auto weight = number<double>(flag, part.substr(at + 1), "NAME=WEIGHT with a number");
    ATH_CHECK(std::isfinite(weight) && weight >= 0 && weight <= 1e15,
              "{}: the weight of '{}' must be a number of at least 0, but is {}", flag, name, weight);
    weights.of.emplace_back(name, weight);
  }
  return weights;
}

TaskLoss task_loss(Text flag, Text text) {
  using enum LossKind;
  const std::vector<std::string> parts = split(text, ':');
  TaskLoss loss{.kind = named({cross_entropy, bce, focal, mse, l1, huber})(flag, parts[0])};
  const std::size_t most = loss.kind == focal ? 3 : loss.kind == huber ? 2 : 1;
  ATH_CHECK(parts.size() <= most, "{}: {} must have at most {} after it, but got '{}'", flag, parts[0],
            most == 1   ? "no number"
            : most == 2 ? "one number"
                        : "two numbers",
            text);
  if (loss.kind == focal && parts.size() > 1) loss.gamma = not_negative(flag, parts[1]);
  if (loss.kind == focal && parts.size() > 2) {
    loss.alpha = number<double>(flag, parts[2], "a number");
    ATH_CHECK(loss.alpha <= 1, "{}: ALPHA must be at most 1, but got {}", flag, parts[2]);
  }
  if (loss.kind == huber && parts.size() > 1) loss.delta = positive()(flag, parts[1]);
  return loss;
}

EarlyStop monitor(Text /*flag*/, Text text) {
  std::string metric = text;
  const std::optional<Goal> goal = take_goal(metric);
  return {metric, EarlyStop::kNever, goal};
}

BadSamples bad_samples(Text flag, Text text) {
  if (text == "strict") return {};
  if (text == "list") return {.list = true};
  ATH_CHECK(text == "skip" || text.starts_with("skip:"),
            "{}: must be strict, skip, skip:LIMIT or list, but got '{}'", flag, text);
  BadSamples policy{.skip = true};
  if (text != "skip") policy.limit = whole(0)(flag, text.substr(5));
  return policy;
}

TrainingLength training_length(Text flag, Text text) {
  constexpr const char* kForm = "a number of steps, or of epochs as in 5e";
  if (!text.ends_with("e")) {
    const auto steps = number<std::int64_t>(flag, text, kForm);
    return {static_cast<double>(whole(0)(flag, fmt::to_string(steps))), false};
  }
  const auto epochs = number<double>(flag, text.substr(0, text.size() - 1), kForm);
  ATH_CHECK(epochs == 0 || (epochs >= 1e-9 && epochs <= 1e9), "{}: must be 0 to 1e9 epochs, but got {}", flag,
            text);
  return {epochs, true};
}

BatchLimit batch_limit(Text flag, Text text, std::int64_t least) {
  if (text.find_first_of(".e") == std::string::npos) return {whole(least)(flag, text), 1};
  const double share = positive()(flag, text);
  ATH_CHECK(share <= 1, "{}: must be a number of batches, or a share of them up to 1.0, but got {}", flag,
            text);
  return {-1, share};
}

ImageSize image_size(Text flag, Text text) {
  const std::vector<std::string> sides = split(lower_case(text), 'x');
  const bool are_numbers = std::ranges::all_of(sides, [](const std::string& side) {
    return !side.empty() && side.find_first_not_of("0123456789") == std::string::npos;
  });
  ATH_CHECK(sides.size() <= 2 && are_numbers,
            "{}: must be PIXELS or HEIGHTxWIDTH, as in 224 or 192x320, but got '{}'", flag, text);
  const auto side = whole(1, 65536);
  return {side(flag, sides.front()), side(flag, sides.back())};
}

double max_time(Text flag, Text text) {
  ATH_CHECK(text.find_first_not_of("0123456789.:e+-") == std::string::npos,
            "{}: must be SECONDS, HH:MM:SS or DD:HH:MM:SS, but got '{}'", flag, text);
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() == 1) return positive(1e-9, 1e9)(flag, text);
  double seconds = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool after_days = parts.size() == 4 && i == 1;
    seconds = seconds * (after_days ? 24 : 60) + static_cast<double>(whole(0, 1'000'000)(flag, parts[i]));
  }
  ATH_CHECK(parts.size() <= 4 && seconds > 0, "{}: must be SECONDS, HH:MM:SS or DD:HH:MM:SS, but got '{}'",
            flag, text);
  return seconds;
}

Precision precision(Text flag, Text text) {
  const auto value = precision_named(lower_case(text));
  ATH_CHECK(value, "{}: must be f32, tf32, bf16 or f16, but got '{}'", flag, text);
  return *value;
}

Precision prediction_precision(Text flag, Text text) {
  const std::string name = lower_case(text);
  const auto value = precision_named(name);
  ATH_CHECK(
      name != "int8",
      "{}: must be f32, bf16 or f16, but got '{}'; `athanor quantize MODEL OUT --calibrate DATA` makes a "
      "model of 8-bit integers, which predicts in them without a flag",
      flag, text);
  ATH_CHECK(value && value != Precision::tf32, "{}: must be f32, bf16 or f16, but got '{}'", flag, text);
  return *value;
}

LossScaling loss_scaling(Text flag, Text text) {
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

ScheduleOptions schedule(Text flag, Text text) {
  const std::vector<std::string> parts = split(text, ':');
  ScheduleOptions options;
  options.kind =
      named({ScheduleKind::constant, ScheduleKind::step, ScheduleKind::multistep, ScheduleKind::cosine,
             ScheduleKind::linear, ScheduleKind::one_cycle, ScheduleKind::plateau})(flag, parts[0]);
  const bool steps = options.kind == ScheduleKind::step || options.kind == ScheduleKind::multistep;
  const bool takes = steps || options.kind == ScheduleKind::plateau;
  ATH_CHECK(takes || parts.size() == 1, "{}: {} takes no value, but got '{}'", flag, parts[0], text);
  ATH_CHECK(parts.size() <= 3 && (!steps || parts.size() >= 2),
            "{}: must be like step:30 or step:30:0.1, multistep:30,60 or multistep:30,60:0.1, plateau:10 or "
            "plateau:10:0.1 (epochs, then the factor), but got '{}'",
            flag, text);
  if (parts.size() > 1 && steps) {
    for (const std::string& epoch : split(parts[1], ',')) {
      options.epochs.push_back(whole(1)(flag, epoch));
      ATH_CHECK(options.epochs.size() == 1 || *(options.epochs.end() - 2) < options.epochs.back(),
                "{}: epochs must increase, but got '{}'", flag, text);
    }
    ATH_CHECK(options.kind == ScheduleKind::multistep || options.epochs.size() == 1,
              "{}: step takes one number of epochs, but got '{}'; use multistep", flag, text);
  } else if (parts.size() > 1) {
    options.patience = whole(0)(flag, parts[1]);
  }
  if (parts.size() > 2) options.factor = positive(1e-6, 1 - 1e-6)(flag, parts[2]);
  return options;
}

namespace {

/// Whether other trainers would take it as the numbers of devices: "0,1", "[0, 1]".
bool is_list(const std::string& text) {
  return text.find_first_of(",[") != std::string::npos;
}

DeviceChoice automatic_device() {
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

}  // namespace

std::int64_t devices(Text flag, Text text) {
  ATH_CHECK(!is_list(text),
            "{}: must be the number of devices, but got '{}'; the environment variable CUDA_VISIBLE_DEVICES "
            "chooses which",
            flag, text);
  return text == "auto" ? TrainerConfig::kAllDevices : whole(1, 1024)(flag, text);
}

DeviceChoice device(Text flag, Text text) {
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
  if (count == 0) detail::fail<BackendError>("{} {}: {}", flag, text, why_no_cuda());
  ATH_CHECK(device.index < count,
            "{}: must be one of the {} GPUs of this machine, cuda:0 to cuda:{}, but got {}", flag, count,
            count - 1, text);
  return {device, cuda_is_emulated() ? "emulated on the CPU: correct, not fast" : device_info(device).name};
}

}  // namespace read_flag
}  // namespace athanor
