#include "trainer/inference/model_file.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <string_view>
#include <type_traits>

#include <nlohmann/json.hpp>

#include "autograd/detail/dense.h"
#include "autograd/shape.h"
#include "kernels/conv_choices.h"
#include "kernels/cpu/context.h"
#include "kernels/reduce.h"
#include "nn/models/model.h"
#include "nn/quantized/quantized_network.h"
#include "nn/scale_outputs.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/base/version.h"
#include "trainer/checkpoints/run_folder.h"

namespace athanor {
namespace {

using Metadata = safetensors::Metadata;

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

/// An entry as text.
template <class T> std::string entry_text(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) return printable(value);
  if constexpr (std::is_same_v<T, Precision> || std::is_same_v<T, LabelKind>)
    return std::string(name_of(value));
  if constexpr (std::is_same_v<T, bool>) return value ? "1" : "0";
  if constexpr (std::is_same_v<T, std::uint64_t>) return fmt::format("{:016x}", value);
  if constexpr (std::is_arithmetic_v<T>) return fmt::to_string(value);
  if constexpr (std::is_same_v<T, std::vector<double>>) return nlohmann::json(value).dump();
}

/// And back.
template <class T> void read(const char* name, std::string_view text, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else if constexpr (std::is_same_v<T, bool>) {
    value = text != "0";
  } else if constexpr (std::is_same_v<T, Precision>) {
    const auto named = precision_named(text);
    ATH_CHECK(named, "'{}' must be f32, tf32, bf16 or f16, but is '{}'", name, text);
    value = *named;
  } else if constexpr (std::is_same_v<T, LabelKind>) {
    const auto named = label_kind_named(text);
    ATH_CHECK(named, "'{}' must be classify, multilabel or regression, but is '{}'", name,
              text.substr(0, 40));
    value = *named;
  } else if constexpr (std::is_arithmetic_v<T>) {
    const char* const end = text.data() + text.size();
    std::from_chars_result result;
    if constexpr (std::is_same_v<T, std::uint64_t>)
      result = std::from_chars(text.data(), end, value, 16);
    else
      result = std::from_chars(text.data(), end, value);
    ATH_CHECK(result.ec == std::errc() && result.ptr == end, "'{}' must be a number, but is '{}'", name,
              text.substr(0, 40));
  } else {
    try {
      value = nlohmann::json::parse(text).get<T>();
    } catch (const nlohmann::json::exception&) {
      detail::fail<>("'{}' must be a list, but is '{}'", name, text.substr(0, 80));
    }
  }
}

/// Calls entry(name, value) for all but sizes and names of classes.
template <class Info, class F> void for_each_entry(Info& info, const F& entry) {
  entry("version", info.version);
  entry("program", info.program);
  entry("model", info.model);
  entry("classifies", info.classifies);
  entry("channels", info.images.channels);
  entry("classes", info.images.classes);
  entry("pixel_mean", info.pixels.mean);
  entry("pixel_deviation", info.pixels.stddev);
  entry("shorter_side", info.shorter_side);
  entry("precision", info.precision);
  entry("batch_size", info.batch_size);
  entry("ranks", info.ranks);
  entry("weights", info.weights);
  entry("test_loss", info.test_loss);
  entry("test_accuracy", info.test_accuracy);
  entry("weights_hash", info.weights_hash);
}

TestViews views_named(std::string_view text) {
  for (const TestViews views : kAllTestViews)
    if (text == name_of(views)) return views;
  detail::fail<>("'tta' must be none, flip or six, but is '{}'", text.substr(0, 40));
}

constexpr char kCover[] = "cover";

/// What most models do not need.
void write_resizing(Metadata& about, const ModelInfo& info) {
  if (info.interpolation != Resampling::bilinear) about["interpolation"] = name_of(info.interpolation);
  if (info.crop_share != 1) about["crop_share"] = entry_text(info.crop_share);
  if (info.resize == ResizeMode::pad) about["pad_value"] = entry_text(info.padding);
  if (info.resize == ResizeMode::crop && info.shorter_side > 0) return;
  about["resize"] = info.resize == ResizeMode::crop ? kCover : name_of(info.resize);
  about["shorter_side"] = fmt::to_string(std::max(info.images.height, info.images.width));
}

void read_resizing(ModelInfo& info, const Metadata& about) {
  const auto if_given = [&about](const char* name, const auto& use) {
    if (const auto found = about.find(name); found != about.end()) use(found->second);
  };
  if_given("resize", [&info](const std::string& text) {
    info.shorter_side = 0;
    if (text == kCover) return;
    const auto mode = resize_mode_named(text);
    ATH_CHECK(mode, "'resize' must be cover, crop, pad or squash, but is '{}'", text.substr(0, 40));
    info.resize = *mode;
  });
  if_given("interpolation", [&info](const std::string& text) {
    const auto named = resampling_named(text);
    ATH_CHECK(named, "'interpolation' must be bilinear, bicubic or nearest, but is '{}'", text.substr(0, 40));
    info.interpolation = *named;
  });
  if_given("crop_share", [&info](const std::string& text) { read("crop_share", text, info.crop_share); });
  if_given("pad_value", [&info](const std::string& text) { read("pad_value", text, info.padding); });
}

/// And for what only descriptions of other tasks than classification have, where it is not empty.
template <class Info, class F> void for_each_entry_of_task(Info& info, const F& entry) {
  entry("task", info.task);
  entry("thresholds", info.thresholds);
  entry("output_mean", info.output_mean);
  entry("output_scale", info.output_scale);
}

ModelInfo info_from(const Metadata& about) {
  ModelInfo info;
  for_each_entry(info, [&](const char* name, auto& value) { read(name, text(about, name), value); });
  const std::string_view size = text(about, "image_size");
  read("image_size", size.substr(0, size.find('x')), info.images.height);
  read("image_size", size.substr(size.find('x') + 1), info.images.width);
  if (about.contains("class_names")) read("class_names", text(about, "class_names"), info.class_names);
  if (about.contains("class_names_are"))
    for (std::string& name : info.class_names) name = percent_decoded(name);
  if (about.contains("tta")) info.tta = views_named(text(about, "tta"));
  read_resizing(info, about);
  for_each_entry_of_task(info, [&](const char* name, auto& value) {
    if (about.contains(name)) read(name, text(about, name), value);
  });
  if (about.contains("conv_choices")) info.conv_choices = text(about, "conv_choices");
  if (about.contains(kQuantized)) info.quantized = text(about, kQuantized);
  if (about.contains("float_model")) info.float_model = text(about, "float_model");
  return info;
}

void check_task(const ModelInfo& info) {
  ATH_CHECK(info.task == LabelKind::classes || info.images.classes > 0,
            "a network for {} must have at least one output, but has none", name_of(info.task));
  const auto check_list = [&](const char* name, const std::vector<double>& list, double low, double high) {
    ATH_CHECK(list.empty() || std::ssize(list) == info.images.classes,
              "'{}' must have a number for each of {} outputs, but has {}", name, info.images.classes,
              list.size());
    for (const double number : list)
      ATH_CHECK(number >= low && number <= high, "'{}' must be numbers in [{}, {}], but one is {}", name, low,
                high, number);
  };
  constexpr double kMost = std::numeric_limits<float>::max(), kLeast = std::numeric_limits<float>::min();
  check_list("thresholds", info.thresholds, 0, 1);
  check_list("output_mean", info.output_mean, -kMost, kMost);
  check_list("output_scale", info.output_scale, kLeast, kMost);
  ATH_CHECK(info.output_mean.size() == info.output_scale.size(),
            "'output_mean' and 'output_scale' must be given together, but are {} and {} numbers",
            info.output_mean.size(), info.output_scale.size());
}

void check(const ModelInfo& info) {
  const ImageSpec& images = info.images;
  constexpr std::int64_t kMax = 1 << 16;  // pixels a side, the limit of --image-size
  ATH_CHECK(are_conv_choices(info.conv_choices), "'conv_choices' must be choices of --benchmark, but is '{}'",
            info.conv_choices.substr(0, 200));
  ATH_CHECK(info.ranks >= 1 && info.ranks <= 1 << 20, "'ranks' must be at least 1, but is {}", info.ranks);
  ATH_CHECK(!info.is_quantized() || info.quantized == kInt8, "'{}' must be {}, but is '{}'", kQuantized,
            kInt8, info.quantized.substr(0, 40));
  if (!info.has_known_task()) return;  // only its program can use it
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
  check_task(info);
  ATH_CHECK(info.shorter_side >= 0 && info.shorter_side <= 2 * kMax && info.batch_size >= 0,
            "'shorter_side' and 'batch_size' must be 0 or more, but are {} and {}", info.shorter_side,
            info.batch_size);
  ATH_CHECK(
      info.crop_share >= kMinCropShare && info.crop_share <= 1 && info.padding >= 0 && info.padding <= 255,
      "'crop_share' must be in [{}, 1] and 'pad_value' in [0, 255], but are {} and {}", kMinCropShare,
      info.crop_share, info.padding);
}

constexpr std::string_view kVariance = "running_var";

}  // namespace

Metadata description(const ModelInfo& info) {
  const ImageSpec& images = info.images;
  Metadata about{{"image_size", fmt::format("{}x{}", images.height, images.width)}};
  for_each_entry(info, [&](const char* name, const auto& value) { about[name] = entry_text(value); });
  about["version"] = version();
  set_class_names(about, info.class_names);
  if (info.tta != TestViews::none) about["tta"] = name_of(info.tta);
  if (info.task != LabelKind::classes) {
    for_each_entry_of_task(info, [&](const char* name, const auto& value) {
      if (const std::string text = entry_text(value); text != "[]") about[name] = text;
    });
  }
  if (!info.conv_choices.empty()) about["conv_choices"] = info.conv_choices;
  if (info.is_quantized()) about[kQuantized] = info.quantized;
  if (!info.float_model.empty()) about["float_model"] = info.float_model;
  write_resizing(about, info);
  return about;
}

std::string counted_outputs(const ModelInfo& info) {
  const bool one = info.images.classes == 1;
  const char* const what = info.task == LabelKind::classes      ? (one ? "class" : "classes")
                           : info.task == LabelKind::multilabel ? (one ? "label" : "labels")
                                                                : (one ? "value" : "values");
  return fmt::format("{} {}", info.images.classes, what);
}

ImageTransform resizing(const ModelInfo& info) {
  return {.height = info.images.height,
          .width = info.images.width,
          .shorter_side = info.shorter_side,
          .crop_share = info.crop_share,
          .mode = info.resize,
          .interpolation = info.interpolation,
          .padding = info.padding};
}

void set_resizing(ModelInfo& info, const ImageTransform& transform) {
  info.shorter_side = transform.shorter_side;
  info.crop_share = transform.crop_share;
  info.resize = transform.mode;
  info.interpolation = transform.interpolation;
  info.padding = transform.padding;
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
  ModelFile file{
      .path = path, .info = {}, .weights = load_state_file(path, StateFile::model, Verify::all, &about)};
  try {
    ATH_CHECK(!about.empty(), "an older version wrote it, without a description; use it with that version");
    file.info = info_from(about);
    check(file.info);
    check_values(file.weights);
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("model: {} cannot be used: {}", path.string(), error.what());
  }
  return file;
}

std::unique_ptr<nn::Module> make_network(const ModelFile& model) {
  const ModelInfo& info = model.info;
  const std::vector<std::string> known = nn::model_names();
  ATH_CHECK(
      info.has_known_task() && std::find(known.begin(), known.end(), info.model) != known.end(),
      "model: {} must hold a classifier that --model names, but holds {} of {}; use it with its own program",
      model.path.string(), info.model.empty() ? "a network" : info.model, info.program);
  const ImageSpec& images = info.images;
  try {
    auto network = nn::make_model(info.model, {images.classes, images.channels, images.height, images.width});
    if (info.is_quantized()) {
      const Shape sample{images.height, images.width, images.channels};
      return std::make_unique<nn::QuantizedNetwork>(*network, sample, model.weights);
    }
    network->load_state_dict(model.weights);
    if (!info.output_scale.empty()) nn::scale_outputs(*network, info.output_mean, info.output_scale);
    return network;
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("model: {} cannot be used: {}", model.path.string(), error.what());
  }
}

OpenModel open_model(const std::filesystem::path& given) {
  ModelFile file = load_model(model_of(given));
  auto network = make_network(file);
  return {std::move(file), std::move(network)};
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
