#include "data/formats/raw.h"

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/dense_store.h"
#include "data/formats/detail/writing.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxSidecar = 1 << 20;

std::filesystem::path beside(std::filesystem::path path, const char* extension) {
  return path.replace_extension(extension);
}

RawOptions read_sidecar(const std::filesystem::path& bin) {
  const std::filesystem::path path = beside(bin, ".json");
  const detail::FileBytes file(path, "raw",
                               "state height, width and channels in it, or give them as options");
  const auto fail = [&](const std::string& message) { file.fail(0, message); };
  if (file.size() > kMaxSidecar)
    fail(fmt::format("must be a small JSON object, but has {} bytes", file.size()));
  json text;
  try {
    text = json::parse(detail::text_of(file.bytes()));
  } catch (const json::parse_error& error) {
    file.fail(static_cast<std::int64_t>(error.byte), "must be JSON, but is not");
  } catch (const json::exception&) {
    fail("must be JSON with numbers of 64 bits, but is not");
  }
  if (!text.is_object()) fail("must be a JSON object, but is not");
  RawOptions options;
  options.channels = 1;
  for (const auto& [key, value] : text.items()) {
    const auto number = [&, &key = key, &value = value](std::int64_t& to) {
      // An unsigned number above the largest signed one would turn negative.
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
        fail(fmt::format("\"{}\" must be a whole number >= 0, but is not", key));
      }
      to = value.get<std::int64_t>();
    };
    const auto string = [&, &key = key, &value = value] {
      if (!value.is_string()) fail(fmt::format("\"{}\" must be a string, but is not", key));
      return value.get<std::string>();
    };
    if (key == "height") {
      number(options.height);
    } else if (key == "width") {
      number(options.width);
    } else if (key == "channels") {
      number(options.channels);
    } else if (key == "classes") {
      number(options.classes);
    } else if (key == "offset") {
      number(options.offset);
    } else if (key == "dtype") {
      if (string() != "u8") fail(fmt::format("\"dtype\" must be u8, but is {}", detail::printable(string())));
    } else if (key == "label_dtype") {
      options.label_dtype = string();
      if (!detail::int_type(options.label_dtype)) {
        fail(fmt::format("\"label_dtype\" must be u8, i8, ... or i64, but is {}",
                         detail::printable(options.label_dtype)));
      }
    } else if (key == "labels") {
      const std::string name = string();
      if (name.empty() || name == ".." ||
          name.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
        fail(fmt::format("\"labels\" must be the name of a file beside it, but is {}",
                         detail::printable(name)));
      }
      options.labels = path.parent_path() / name;
    } else {
      fail(
          fmt::format("must have no entry but height, width, channels, classes, offset, dtype, labels and "
                      "label_dtype, but has {}",
                      detail::printable(key)));
    }
  }
  if (const auto bad = detail::bad_image(options.height, options.width, options.channels)) fail(*bad);
  if (options.classes > detail::kMaxClasses) {
    fail(fmt::format("\"classes\" must be at most {}, but is {}", detail::kMaxClasses, options.classes));
  }
  return options;
}

class RawWriter final : public SampleWriter {
 public:
  RawWriter(const std::filesystem::path& path, std::int64_t classes)
      : path_(path),
        classes_(classes),
        images_(path),
        labels_(beside(path, ".labels.bin")),
        sidecar_(beside(path, ".json")) {
    detail::check_classes(classes, "raw");
    ATH_CHECK(path.extension() == ".bin", "raw: the name must end in .bin, but is {}", path.string());
  }

  void add(const StoredSample& sample) override {
    ATH_CHECK(classes_ == 0 || sample.label < classes_, "raw: labels must be below {}, but got {}", classes_,
              sample.label);
    samples_.add(sample);
    images_.write(sample.bytes);
  }

  void finish() override {
    samples_.check_some();
    const ImageSpec& spec = samples_.spec();
    const detail::IntType type = detail::smallest_type(samples_.labels());
    labels_.write(detail::stored_labels(samples_.labels(), type));
    json text{{"height", spec.height}, {"width", spec.width}, {"channels", spec.channels}, {"dtype", "u8"}};
    if (classes_ > 0) text["classes"] = classes_;
    text["labels"] = beside(path_, ".labels.bin").filename().string();
    text["label_dtype"] = detail::name_of(type);
    sidecar_.write(detail::bytes_of(text.dump(2, ' ', false, json::error_handler_t::ignore) + '\n'));
    images_.commit();
    labels_.commit();
    sidecar_.commit();
  }

 private:
  std::filesystem::path path_;
  std::int64_t classes_;
  detail::UniformSamples samples_{"raw"};
  detail::OutputFile images_, labels_, sidecar_;
};

}  // namespace

std::unique_ptr<Dataset> open_raw(const std::filesystem::path& path, const RawOptions& given) {
  const RawOptions options = given.height == 0 ? read_sidecar(path) : given;
  const auto bad_shape = detail::bad_image(options.height, options.width, options.channels);
  ATH_CHECK(!bad_shape, "raw: {}", *bad_shape);
  const std::optional<detail::IntType> type = detail::int_type(options.label_dtype);
  ATH_CHECK(type, "raw: label_dtype must be u8, i8, ... or i64, but got {}", options.label_dtype);
  detail::check_classes(options.classes, "raw");
  ATH_CHECK(options.offset >= 0, "raw: offset must be >= 0, but got {}", options.offset);

  constexpr char kAdvice[] = "check height, width, channels and offset";
  const auto file = std::make_shared<detail::FileBytes>(path, "raw", kAdvice);
  ImageSpec spec{options.height, options.width, options.channels, 0};
  const std::int64_t rest = file->size() - std::min(options.offset, file->size());
  if (rest == 0 || rest % spec.bytes() != 0) {
    file->fail(options.offset, fmt::format("images of {} bytes, at least one, must follow, but {} bytes do",
                                           spec.bytes(), rest));
  }
  std::vector<std::int64_t> labels(static_cast<std::size_t>(rest / spec.bytes()));
  if (!options.labels.empty()) {
    const detail::FileBytes label_file(options.labels, "raw", "there must be one label for each image");
    labels = detail::read_labels(label_file, 0, std::ssize(labels), *type, options.classes);
    if (const std::int64_t end = std::ssize(labels) * type->bytes; label_file.size() > end) {
      label_file.fail(end,
                      fmt::format("the file must end here, after {} labels, but goes on", labels.size()));
    }
  }
  spec.classes = detail::count_classes(labels, options.classes);
  return std::make_unique<detail::DenseStore>(file, options.offset, spec, std::move(labels));
}

std::unique_ptr<SampleWriter> create_raw(const std::filesystem::path& path, std::int64_t classes) {
  return std::make_unique<RawWriter>(path, classes);
}

}  // namespace athanor
