#include "trainer/inference/model_file.h"

#include <charconv>

#include "kernels/conv_choices.h"
#include "tensor/error.h"
#include "tensor/printable.h"
#include "tensor/version.h"

namespace athanor {
namespace {

// Prefix of entries that are not tensors, in the file's metadata.
constexpr char kAbout[] = "about.";

void set_list(StateDict& about, const std::string& name, const auto& values) {
  for (std::size_t i = 0; i < values.size(); ++i) about.set(fmt::format("{}.{}", name, i), values[i]);
}

/// Reads a list written by set_list(); `get(name)` reads an entry.
template <class T, class Get>
std::vector<T> list(const StateDict& about, const std::string& name, const Get& get) {
  std::vector<T> values;
  for (std::string at = name + ".0"; about.contains(at); at = fmt::format("{}.{}", name, values.size()))
    values.push_back(get(at));
  return values;
}

StateDict state_of(const ModelInfo& info) {
  StateDict about;
  about.set("version", std::string(version()));
  about.set("program", printable(info.program));
  about.set("model", info.model);
  about.set("classifies", std::int64_t{info.classifies});
  about.set("height", info.images.height);
  about.set("width", info.images.width);
  about.set("channels", info.images.channels);
  about.set("classes", info.images.classes);
  std::vector<std::string> names;  // from folder names: any bytes
  for (const std::string& name : info.class_names) names.push_back(printable(name));
  set_list(about, "class", names);
  set_list(about, "pixel_mean", info.pixels.mean);
  set_list(about, "pixel_stddev", info.pixels.stddev);
  about.set("shorter_side", info.shorter_side);
  about.set("precision", std::string(name_of(info.precision)));
  about.set("batch_size", info.batch_size);
  about.set("ranks", std::int64_t{info.ranks});
  if (!info.conv_choices.empty()) about.set("conv_choices", info.conv_choices);
  about.set("weights", info.weights);
  about.set("test_loss", info.test_loss);
  about.set("test_accuracy", info.test_accuracy);
  about.set("weights_hash", fmt::format("{:016x}", info.weights_hash));
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

ModelInfo info_from(const StateDict& about) {
  ModelInfo info;
  info.version = about.text("version");
  info.program = about.text("program");
  info.model = about.text("model");
  info.classifies = about.integer("classifies") != 0;
  info.images = {about.integer("height"), about.integer("width"), about.integer("channels"),
                 about.integer("classes")};
  info.class_names = list<std::string>(about, "class", [&](const std::string& at) { return about.text(at); });
  const auto real = [&](const std::string& at) { return about.real(at); };
  info.pixels.mean = list<double>(about, "pixel_mean", real);
  info.pixels.stddev = list<double>(about, "pixel_stddev", real);
  info.shorter_side = about.integer("shorter_side");
  info.precision = precision_from(about.text("precision"));
  info.batch_size = about.integer("batch_size");
  if (about.contains("ranks")) info.ranks = ranks_from(about.integer("ranks"));  // absent in older versions
  if (about.contains("conv_choices")) info.conv_choices = about.text("conv_choices");
  ATH_CHECK(are_conv_choices(info.conv_choices), "'conv_choices' must be choices of --benchmark, but is '{}'",
            info.conv_choices.substr(0, 200));
  info.weights = about.text("weights");
  info.test_loss = about.real("test_loss");
  info.test_accuracy = about.real("test_accuracy");
  info.weights_hash = hash_from(about.text("weights_hash"));
  about.require_all_used("model");
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

}  // namespace

StateDict model_state(const ModelInfo& info, const StateDict& weights) {
  StateDict state;
  state.set_all("", weights);
  state.set_all(kAbout, state_of(info));
  return state;
}

bool is_model(const safetensors::Metadata& metadata) {
  const auto format = metadata.find("format");
  return format != metadata.end() && format->second == format_of(StateFile::model);
}

ModelFile load_model(const std::filesystem::path& path) {
  const StateDict all = load_state_file(path, StateFile::model);
  ModelFile file;
  file.path = path;
  try {
    file.info = info_from(all.under(kAbout));
    check(file.info);
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("model: {} cannot be used: {}", path.string(), error.what());
  }
  for (const StateDict::Entry& entry : all) {
    if (!entry.name.starts_with(kAbout)) file.weights.set(entry.name, entry.value);
  }
  return file;
}

}  // namespace athanor
