#include "data/formats/raw.h"

#include <map>

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/indexed_store.h"
#include "data/formats/detail/writing.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using nlohmann::json;

constexpr std::int64_t kMaxSidecar = 1 << 20;

std::filesystem::path beside(std::filesystem::path path, const char* extension) {
  return path.replace_extension(extension);
}

/// The object in NAME.json, which is `file`.
json read_object(const detail::FileBytes& file) {
  if (file.size() > kMaxSidecar) {
    file.fail(0, "must be a small JSON object, but has {} bytes", file.size());
  }
  const std::vector<std::byte> bytes = file.all();
  json all;
  try {
    all = json::parse(detail::text_of(bytes));
  } catch (const json::parse_error& error) {
    file.fail(static_cast<std::int64_t>(error.byte), "must be JSON, but is not");
  } catch (const json::exception&) {
    file.fail(0, "must be JSON with 64-bit numbers, but is not");
  }
  if (!all.is_object()) file.fail(0, "must be a JSON object, but is not");
  return all;
}

/// What NAME.json says of NAME.bin.
struct Description {
  std::int64_t height = 0, width = 0, channels = 1, classes = 0, offset = 0;
  std::filesystem::path labels = {};  ///< empty: every label is 0
  std::string label_dtype = "u8";

  ImageSpec spec() const { return {height, width, channels, classes}; }
};

Description read_sidecar(const std::filesystem::path& bin) {
  const std::filesystem::path path = beside(bin, ".json");
  const detail::FileBytes file(path, "raw", "put height, width and channels into it");
  Description options;
  std::string dtype = "u8", labels;
  const std::map<std::string, std::int64_t*> numbers{{"height", &options.height},
                                                     {"width", &options.width},
                                                     {"channels", &options.channels},
                                                     {"classes", &options.classes},
                                                     {"offset", &options.offset}};
  const std::map<std::string, std::string*> texts{
      {"dtype", &dtype}, {"labels", &labels}, {"label_dtype", &options.label_dtype}};
  const json all = read_object(file);
  for (const auto& [key, value] : all.items()) {
    if (const auto at = numbers.find(key); at != numbers.end()) {
      // An unsigned number above the largest signed one would become negative.
      if (!value.is_number_integer() || value.get<std::int64_t>() < 0) {
        file.fail(0, "\"{}\" must be a whole number >= 0, but is not", key);
      }
      value.get_to(*at->second);
    } else if (const auto text = texts.find(key); text != texts.end()) {
      if (!value.is_string()) file.fail(0, "\"{}\" must be a string, but is not", key);
      value.get_to(*text->second);
    } else {
      file.fail(0,
                "must have no entries except height, width, channels, classes, offset, dtype, labels and "
                "label_dtype, but has {}",
                detail::printable(key));
    }
  }
  if (dtype != "u8") file.fail(0, "\"dtype\" must be u8, but is {}", detail::printable(dtype));
  if (!detail::int_type(options.label_dtype)) {
    file.fail(0, "\"label_dtype\" must be u8, i8, ... or i64, but is {}",
              detail::printable(options.label_dtype));
  }
  if (all.contains("labels")) {
    const bool leads_away = labels.find_first_of(std::string_view("/\0", 2)) != std::string::npos;
    if (labels.empty() || labels == ".." || leads_away) {
      file.fail(0, "\"labels\" must be the name of a file in the same folder, but is {}",
                detail::printable(labels));
    }
    options.labels = path.parent_path() / labels;
  }
  if (const auto bad = detail::bad_image({options.height, options.width, options.channels, 0})) {
    file.fail(0, "{}", *bad);
  }
  if (options.classes > detail::kMaxClasses) {
    file.fail(0, "\"classes\" must be at most {}, but is {}", detail::kMaxClasses, options.classes);
  }
  return options;
}

}  // namespace

std::unique_ptr<Dataset> open_raw(const std::filesystem::path& path) {
  const Description options = read_sidecar(path);
  const ImageSpec spec = options.spec();
  constexpr char kAdvice[] = "check height, width, channels and offset";
  const auto file = std::make_shared<detail::FileBytes>(path, "raw", kAdvice);
  const std::int64_t rest = file->size() - std::min(options.offset, file->size());
  if (rest == 0 || rest % spec.bytes() != 0) {
    file->fail(options.offset, "at least one image of {} bytes must follow, but {} bytes do", spec.bytes(),
               rest);
  }
  std::vector<std::int64_t> labels(static_cast<std::size_t>(rest / spec.bytes()));
  if (!options.labels.empty()) {
    const detail::FileBytes label_file(options.labels, "raw", "there must be one label for each image");
    const detail::IntType type = *detail::int_type(options.label_dtype);
    labels = detail::read_labels(label_file, 0, std::ssize(labels), type, options.classes);
    label_file.must_end_at(std::ssize(labels) * type.bytes);
  }
  return detail::dense_store(file, options.offset, spec, labels);
}

std::unique_ptr<SampleWriter> create_raw(const std::filesystem::path& path, std::int64_t classes) {
  detail::check_classes(classes, "raw");
  ATH_CHECK(path.extension() == ".bin", "raw: the name must end in .bin, but is {}", path.string());
  const std::filesystem::path labels = beside(path, ".labels.bin");
  const auto stored = [](const detail::UniformSamples& samples) {
    return detail::stored_labels(samples.labels(), detail::smallest_type(samples.labels()));
  };
  const auto sidecar = [=](const detail::UniformSamples& samples) {
    const ImageSpec& spec = samples.spec();
    json text{{"height", spec.height}, {"width", spec.width}, {"channels", spec.channels}, {"dtype", "u8"}};
    if (classes > 0) text["classes"] = classes;
    text["labels"] = labels.filename().string();
    text["label_dtype"] = detail::name_of(detail::smallest_type(samples.labels()));
    const std::string words = text.dump(2, ' ', false, json::error_handler_t::ignore) + '\n';
    return detail::ByteWriter().add(words).bytes;
  };
  const auto no_header = [](std::int64_t, const ImageSpec&) { return std::vector<std::byte>(); };
  return detail::create_dense(path, detail::UniformSamples("raw", classes), no_header,
                              {{labels, stored}, {beside(path, ".json"), sidecar}});
}

}  // namespace athanor
