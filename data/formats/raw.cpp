#include "data/formats/raw.h"

#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/writing.h"
#include "tensor/error.h"

namespace athanor {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxSidecar = 1 << 20;

std::filesystem::path beside(std::filesystem::path path, const char* extension) {
  return path.replace_extension(extension);
}

/// NAME.json beside NAME.bin.
class Sidecar {
 public:
  explicit Sidecar(const std::filesystem::path& bin)
      : path_(beside(bin, ".json")),
        file_(path_, "raw", "state height, width and channels in it, or give them as options") {}

  RawOptions read() const {
    RawOptions options;
    options.channels = 1;
    const json all = object();
    for (const auto& [key, value] : all.items()) read_entry(key, value, options);
    if (const auto bad = detail::bad_image({options.height, options.width, options.channels, 0})) {
      fail("{}", *bad);
    }
    if (options.classes > detail::kMaxClasses) {
      fail("\"classes\" must be at most {}, but is {}", detail::kMaxClasses, options.classes);
    }
    return options;
  }

 private:
  template <class... Args> [[noreturn]] void fail(fmt::format_string<Args...> message, Args&&... args) const {
    file_.fail(0, message, std::forward<Args>(args)...);
  }

  json object() const {
    if (file_.size() > kMaxSidecar) {
      fail("must be a small JSON object, but has {} bytes", file_.size());
    }
    json text;
    try {
      text = json::parse(detail::text_of(file_.bytes()));
    } catch (const json::parse_error& error) {
      file_.fail(static_cast<std::int64_t>(error.byte), "must be JSON, but is not");
    } catch (const json::exception&) {
      fail("must be JSON with numbers of 64 bits, but is not");
    }
    if (!text.is_object()) fail("must be a JSON object, but is not");
    return text;
  }

  void read_entry(const std::string& key, const json& value, RawOptions& options) const {
    const std::array<std::pair<const char*, std::int64_t*>, 5> numbers{{{"height", &options.height},
                                                                        {"width", &options.width},
                                                                        {"channels", &options.channels},
                                                                        {"classes", &options.classes},
                                                                        {"offset", &options.offset}}};
    for (const auto& [name, to] : numbers) {
      if (key != name) continue;
      // An unsigned number above the largest signed one would turn negative.
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
        fail("\"{}\" must be a whole number >= 0, but is not", key);
      }
      *to = value.get<std::int64_t>();
      return;
    }
    if (key != "dtype" && key != "labels" && key != "label_dtype") {
      fail(
          "must have no entry but height, width, channels, classes, offset, dtype, labels and "
          "label_dtype, but has {}",
          detail::printable(key));
    }
    if (!value.is_string()) fail("\"{}\" must be a string, but is not", key);
    const std::string text = value.get<std::string>(), shown = detail::printable(text);
    if (key == "dtype") {
      if (text != "u8") fail("\"dtype\" must be u8, but is {}", shown);
    } else if (key == "label_dtype") {
      options.label_dtype = text;
      if (!detail::int_type(text)) {
        fail("\"label_dtype\" must be u8, i8, ... or i64, but is {}", shown);
      }
    } else {
      if (text.empty() || text == ".." ||
          text.find_first_of(std::string_view("/\0", 2)) != std::string::npos) {
        fail("\"labels\" must be the name of a file beside it, but is {}", shown);
      }
      options.labels = path_.parent_path() / text;
    }
  }

  std::filesystem::path path_;
  detail::FileBytes file_;
};

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
  const RawOptions options = given.height == 0 ? Sidecar(path).read() : given;
  const ImageSpec spec{options.height, options.width, options.channels, options.classes};
  const auto bad_shape = detail::bad_image(spec);
  ATH_CHECK(!bad_shape, "raw: {}", *bad_shape);
  const std::optional<detail::IntType> type = detail::int_type(options.label_dtype);
  ATH_CHECK(type, "raw: label_dtype must be u8, i8, ... or i64, but got {}", options.label_dtype);
  detail::check_classes(options.classes, "raw");
  ATH_CHECK(options.offset >= 0, "raw: offset must be >= 0, but got {}", options.offset);

  constexpr char kAdvice[] = "check height, width, channels and offset";
  const auto file = std::make_shared<detail::FileBytes>(path, "raw", kAdvice);
  const std::int64_t rest = file->size() - std::min(options.offset, file->size());
  if (rest == 0 || rest % spec.bytes() != 0) {
    file->fail(options.offset, "images of {} bytes, at least one, must follow, but {} bytes do", spec.bytes(),
               rest);
  }
  std::vector<std::int64_t> labels(static_cast<std::size_t>(rest / spec.bytes()));
  if (!options.labels.empty()) {
    const detail::FileBytes label_file(options.labels, "raw", "there must be one label for each image");
    labels = detail::read_labels(label_file, 0, std::ssize(labels), *type, options.classes);
    label_file.must_end_at(std::ssize(labels) * type->bytes);
  }
  return detail::dense_store(file, options.offset, spec, labels);
}

std::unique_ptr<SampleWriter> create_raw(const std::filesystem::path& path, std::int64_t classes) {
  return std::make_unique<RawWriter>(path, classes);
}

}  // namespace athanor
