#include "trainer/inference/model_file.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include <nlohmann/json.hpp>

#include "autograd/detail/dense.h"
#include "autograd/shape.h"
#include "kernels/context.h"
#include "kernels/conv_choices.h"
#include "kernels/reduce.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "tensor/version.h"

namespace athanor {
namespace {

using Metadata = safetensors::Metadata;

// In older files, the description is entries of the state with this prefix.
constexpr char kAbout[] = "about.";
constexpr char kEncoded[] = "percent-encoded";

/// As JSON, which holds UTF-8 alone: names of folders may be any bytes.
void set_class_names(Metadata& about, const std::vector<std::string>& names) {
  if (names.empty()) return;
  try {
    about["class_names"] = nlohmann::json(names).dump();
  } catch (const nlohmann::json::type_error&) {
    std::vector<std::string> encoded;
    for (const std::string& name : names) encoded.push_back(percent_encoded(name));
    about["class_names"] = nlohmann::json(encoded).dump();
    about["class_names_are"] = kEncoded;
  }
}

const std::string& text(const Metadata& about, const std::string& name) {
  const auto found = about.find(name);
  ATH_CHECK(found != about.end(), "its description must have '{}', but has not", name);
  return found->second;
}

template <class T> T number_in(const std::string& digits, const std::string& name) {
  T value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  ATH_CHECK(error == std::errc() && end == digits.data() + digits.size(),
            "'{}' must be a number, but is '{}'", name, digits.substr(0, 40));
  return value;
}

template <class T> T number(const Metadata& about, const std::string& name) {
  return number_in<T>(text(about, name), name);
}

template <class T> std::vector<T> list(const Metadata& about, const std::string& name) {
  const std::string& json = text(about, name);
  try {
    return nlohmann::json::parse(json).get<std::vector<T>>();
  } catch (const nlohmann::json::exception&) {
    detail::fail<>("'{}' must be a list, but is '{}'", name, json.substr(0, 80));
  }
}

std::vector<std::string> class_names_from(const Metadata& about) {
  if (!about.contains("class_names")) return {};
  auto names = list<std::string>(about, "class_names");
  if (about.contains("class_names_are"))
    for (std::string& name : names) name = percent_decoded(name);
  return names;
}

/// The description of an older file, under today's names.
Metadata from_entries(const StateDict& old) {
  Metadata about;
  std::vector<double> mean, deviation;
  std::vector<std::string> names;
  for (const StateDict::Entry& entry : old) {
    const auto* const integer = std::get_if<std::int64_t>(&entry.value);
    const auto* const real = std::get_if<double>(&entry.value);
    const auto* const words = std::get_if<std::string>(&entry.value);
    if (entry.name.starts_with("class.") && words) names.push_back(*words);
    if (entry.name.starts_with("pixel_mean.") && real) mean.push_back(*real);
    if (entry.name.starts_with("pixel_stddev.") && real) deviation.push_back(*real);
    if (integer) about[entry.name] = fmt::to_string(*integer);
    if (real) about[entry.name] = fmt::to_string(*real);
    if (words) about[entry.name] = *words;
  }
  if (old.empty()) return about;
  set_class_names(about, names);
  about["pixel_mean"] = nlohmann::json(mean).dump();
  about["pixel_deviation"] = nlohmann::json(deviation).dump();
  about["image_size"] = fmt::format("{}x{}", about["height"], about["width"]);
  return about;
}

Precision precision_from(const std::string& text) {
  const auto precision = precision_named(text);
  ATH_CHECK(precision, "'precision' must be f32, tf32, bf16 or f16, but is '{}'", text);
  return *precision;
}

std::uint64_t hash_from(const std::string& text) {
  std::uint64_t hash = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), hash, 16);
  ATH_CHECK(error == std::errc() && end == text.data() + text.size(),
            "'weights_hash' must be a number of 16 digits, but is '{}'", text);
  return hash;
}

int ranks_from(std::int64_t count) {
  ATH_CHECK(count >= 1 && count <= 1 << 20, "'ranks' must be at least 1, but is {}", count);
  return static_cast<int>(count);
}

ModelInfo info_from(const Metadata& about) {
  ModelInfo info;
  info.version = text(about, "version");
  info.program = text(about, "program");
  info.model = text(about, "model");
  info.classifies = text(about, "classifies") != "0";
  const std::string& size = text(about, "image_size");
  info.images.height = number_in<std::int64_t>(size.substr(0, size.find('x')), "image_size");
  info.images.width = number_in<std::int64_t>(size.substr(size.find('x') + 1), "image_size");
  info.images.channels = number<std::int64_t>(about, "channels");
  info.images.classes = number<std::int64_t>(about, "classes");
  info.class_names = class_names_from(about);
  info.pixels.mean = list<double>(about, "pixel_mean");
  info.pixels.stddev = list<double>(about, "pixel_deviation");
  if (!about.contains("resize")) info.shorter_side = number<std::int64_t>(about, "shorter_side");
  info.precision = precision_from(text(about, "precision"));
  info.batch_size = number<std::int64_t>(about, "batch_size");
  if (about.contains("ranks")) info.ranks = ranks_from(number<std::int64_t>(about, "ranks"));
  if (about.contains("conv_choices")) info.conv_choices = text(about, "conv_choices");
  ATH_CHECK(are_conv_choices(info.conv_choices), "'conv_choices' must be choices of --benchmark, but is '{}'",
            info.conv_choices.substr(0, 200));
  info.weights = text(about, "weights");
  info.test_loss = number<double>(about, "test_loss");
  info.test_accuracy = number<double>(about, "test_accuracy");
  info.weights_hash = hash_from(text(about, "weights_hash"));
  return info;
}

void check(const ModelInfo& info) {
  const ImageSpec& images = info.images;
  constexpr std::int64_t kMax = 1 << 16;  // pixels a side, the limit of --image-size
  if (!info.classifies) return;           // only its program can use it
  ATH_CHECK(images.height > 0 && images.width > 0 && images.height <= kMax && images.width <= kMax &&
                images.channels > 0 && images.channels <= 16 && images.classes >= 0,
            "images must be of 1 to {} pixels a side and 1 to 16 channels, but are {}x{}x{}", kMax,
            images.height, images.width, images.channels);
  ATH_CHECK(info.class_names.empty() || std::ssize(info.class_names) == images.classes,
            "there must be a name for each of {} classes, but there are {}", images.classes,
            info.class_names.size());
  ATH_CHECK(
      std::ssize(info.pixels.mean) == images.channels && std::ssize(info.pixels.stddev) == images.channels,
      "there must be a mean and a deviation for each of {} channels, but there are {} and {}",
      images.channels, info.pixels.mean.size(), info.pixels.stddev.size());
  ATH_CHECK(info.shorter_side >= 0 && info.shorter_side <= 2 * kMax && info.batch_size >= 0,
            "'shorter_side' and 'batch_size' must be 0 or more, but are {} and {}", info.shorter_side,
            info.batch_size);
}

constexpr std::string_view kVariance = "running_var";

}  // namespace

Metadata description(const ModelInfo& info) {
  const ImageSpec& images = info.images;
  Metadata about{{"version", std::string(version())},
                 {"program", printable(info.program)},
                 {"model", info.model},
                 {"classifies", info.classifies ? "1" : "0"},
                 {"image_size", fmt::format("{}x{}", images.height, images.width)},
                 {"channels", fmt::to_string(images.channels)},
                 {"classes", fmt::to_string(images.classes)},
                 {"pixel_mean", nlohmann::json(info.pixels.mean).dump()},
                 {"pixel_deviation", nlohmann::json(info.pixels.stddev).dump()},
                 {"shorter_side", fmt::to_string(info.shorter_side)},
                 {"precision", std::string(name_of(info.precision))},
                 {"batch_size", fmt::to_string(info.batch_size)},
                 {"ranks", fmt::to_string(info.ranks)},
                 {"weights", printable(info.weights)},
                 {"test_loss", fmt::to_string(info.test_loss)},
                 {"test_accuracy", fmt::to_string(info.test_accuracy)},
                 {"weights_hash", fmt::format("{:016x}", info.weights_hash)}};
  set_class_names(about, info.class_names);
  if (!info.conv_choices.empty()) about["conv_choices"] = info.conv_choices;
  if (info.shorter_side == 0) {
    about["resize"] = "cover";
    about["shorter_side"] = fmt::to_string(std::max(images.height, images.width));
  }
  return about;
}

std::optional<ModelInfo> described(const Metadata& metadata) {
  if (!metadata.contains("pixel_deviation")) return std::nullopt;
  ModelInfo info = info_from(metadata);
  check(info);
  return info;
}

void save_model(const std::filesystem::path& path, const ModelInfo& info, const StateDict& weights,
                const dist::ReadTensor& read) {
  save_state_file(path, StateFile::model, weights, read, description(info));
}

ModelFile load_model(const std::filesystem::path& path) {
  Metadata about;
  const StateDict all = load_state_file(path, StateFile::model, Verify::all, &about);
  ModelFile file;
  file.path = path;
  for (const StateDict::Entry& entry : all) {
    if (!entry.name.starts_with(kAbout)) file.weights.set(entry.name, entry.value);
  }
  try {
    file.info = info_from(about.empty() ? from_entries(all.under(kAbout)) : about);
    check(file.info);
    check_values(file.weights);
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("model: {} cannot be used: {}", path.string(), error.what());
  }
  return file;
}

void check_values(const StateDict& weights) {
  for (const StateDict::Entry& entry : weights) {
    const Tensor* const tensor = std::get_if<Tensor>(&entry.value);
    if (!tensor || !is_floating(tensor->dtype())) continue;
    const Tensor values = dense(cast(tensor->detach().to(kCpu), DType::f32));
    ATH_CHECK(kernels::count_nonfinite(cpu_context(), values) == 0,
              "weights must be finite, but '{}' holds an infinite value or NaN", entry.name);
    if (entry.name != kVariance && !entry.name.ends_with(fmt::format(".{}", kVariance))) continue;
    for (const double value : values.to_vector())
      ATH_CHECK(value >= 0, "variances must be 0 or more, but '{}' holds {:.6g}", entry.name, value);
  }
}

}  // namespace athanor
