#include "data/formats/manifest.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/file_bytes.h"
#include "tensor/atomic_file.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr char kFormat[] = "athanor manifest", kSuffix[] = ".athp.json";

struct Part {
  std::string name, content_id;
  std::int64_t samples = 0, bytes = 0;
};

template <class... Args>
[[noreturn]] void fail(const std::filesystem::path& path, fmt::format_string<Args...> format,
                       Args&&... args) {
  detail::fail<IoError>("manifest: {}: {}", path.string(), fmt::format(format, std::forward<Args>(args)...));
}

std::vector<Part> read_parts(const std::filesystem::path& path) {
  const detail::FileBytes text(path, "manifest", "pack the set again");
  std::vector<Part> parts;
  try {
    const nlohmann::json all = nlohmann::json::parse(detail::text_of(text.bytes()));
    if (all.at("format") != kFormat || all.at("version") != 1) {
      fail(path, "must have \"format\": \"{}\" and \"version\": 1, but has {} and {}", kFormat,
           all.at("format").dump(), all.at("version").dump());
    }
    for (const nlohmann::json& file : all.at("files")) {
      parts.push_back({file.at("name").get<std::string>(), file.at("content_id").get<std::string>(),
                       file.at("samples").get<std::int64_t>(), file.at("bytes").get<std::int64_t>()});
      // A manifest that was fetched must not lead anywhere else.
      const std::string& name = parts.back().name;
      if (name.empty() || name.find('/') != std::string::npos) {
        fail(path, "files must lie beside it, but \"name\" is {}", file.at("name").dump());
      }
    }
  } catch (const nlohmann::json::exception& error) {
    std::string what = error.what();
    std::replace(what.begin(), what.end(), '\n', ' ');
    fail(path, "must be a manifest, but: {}", what);
  }
  return parts;
}

class ManifestStore final : public SampleStore {
 public:
  ManifestStore(const std::filesystem::path& path, const PackedOptions& options) {
    const std::vector<Part> parts = read_parts(path);
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Part& part = parts[i];
      auto store = std::make_unique<PackedStore>(path.parent_path() / part.name, options);
      if (store->content_id() != part.content_id || store->size() != part.samples ||
          store->file_bytes() != part.bytes) {
        fail(path, "{} must have content id {}, {} samples and {} bytes, but has {}, {} and {}", part.name,
             part.content_id, part.samples, part.bytes, store->content_id(), store->size(),
             store->file_bytes());
      }
      const ImageSpec& spec = store->spec();
      const std::int64_t classes = std::max(spec_.classes, spec.classes);
      const bool same =
          spec.height == spec_.height && spec.width == spec_.width && spec.channels == spec_.channels;
      if (first_.back() == 0) {
        spec_ = spec;
      } else if (!same && store->size() > 0) {
        spec_ = {};
      }
      spec_.classes = classes;
      std::vector<std::string> names = store->class_names();
      if (i > 0 && names != class_names_) {
        fail(path, "all files must name the same classes, but {} and {} do not", parts[0].name, part.name);
      }
      class_names_ = std::move(names);
      first_.push_back(first_.back() + store->size());
      stores_.push_back(std::move(store));
    }
  }

  std::int64_t size() const override { return first_.back(); }
  const ImageSpec& spec() const override { return spec_; }
  std::vector<std::string> class_names() const override { return class_names_; }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& scratch) const override {
    const std::size_t part = find(index);
    return stores_[part]->fetch(index - first_[part], scratch);
  }
  std::string where(std::int64_t index) const override {
    const std::size_t part = find(index);
    return stores_[part]->where(index - first_[part]);
  }
  void will_need(std::int64_t first, std::int64_t count) const override {
    const std::int64_t begin = std::max<std::int64_t>(first, 0),
                       end = begin + std::min(count, size() - begin);
    for (std::size_t part = 0; part < stores_.size(); ++part) {
      const std::int64_t from = std::max(begin, first_[part]), to = std::min(end, first_[part + 1]);
      if (from < to) stores_[part]->will_need(from - first_[part], to - from);
    }
  }

 private:
  std::size_t find(std::int64_t index) const {
    ATH_CHECK(index >= 0 && index < size(), "manifest: index must be in [0, {}), but got {}", size(), index);
    return static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), index) - first_.begin()) -
           1;
  }

  std::vector<std::unique_ptr<PackedStore>> stores_;
  std::vector<std::int64_t> first_{0};  // sample of each store, and the end
  ImageSpec spec_;
  std::vector<std::string> class_names_;
};

class ManifestWriter final : public SampleWriter {
 public:
  ManifestWriter(std::filesystem::path path, std::int64_t file_bytes, PackedWriterOptions options)
      : path_(std::move(path)), most_bytes_(file_bytes), options_(std::move(options)) {
    const std::string name = path_.filename().string();
    ATH_CHECK(name.ends_with(kSuffix) && name.size() > sizeof kSuffix - 1,
              "manifest: the name must end in {}, but is {}", kSuffix, name);
    ATH_CHECK(file_bytes > 0, "manifest: file_bytes must be positive, but got {}", file_bytes);
    stem_ = name.substr(0, name.size() - (sizeof kSuffix - 1));
    check_absent(path_);
  }
  ~ManifestWriter() override {
    if (finished_) return;
    writer_.reset();
    std::error_code ignored;
    for (const Part& part : parts_) std::filesystem::remove(path_.parent_path() / part.name, ignored);
  }

  void add(const StoredSample& sample) override {
    const std::int64_t bytes = std::ssize(sample.bytes);
    if (writer_ && bytes_ > 0 && bytes > most_bytes_ - bytes_) end_file();
    if (!writer_) begin_file();
    writer_->add(sample);
    bytes_ += bytes;
    ++samples_;
  }

  void finish() override {
    if (writer_ || parts_.empty()) {
      if (!writer_) begin_file();
      end_file();
    }
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const Part& part : parts_) {
      files.push_back({{"name", part.name},
                       {"samples", part.samples},
                       {"bytes", part.bytes},
                       {"content_id", part.content_id}});
    }
    const nlohmann::ordered_json all{{"format", kFormat}, {"version", 1}, {"files", files}};
    const std::string text = all.dump(2) + "\n";
    AtomicFile file(path_);
    file.write(std::as_bytes(std::span(text)));
    file.commit();
    finished_ = true;
  }

 private:
  static void check_absent(const std::filesystem::path& path) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      fail(path, "must not exist yet: remove the set, or choose another name");
    }
  }

  void begin_file() {
    name_ = fmt::format("{}-{:05}.athp", stem_, parts_.size());
    check_absent(path_.parent_path() / name_);
    writer_ = std::make_unique<PackedWriter>(path_.parent_path() / name_, options_);
    bytes_ = samples_ = 0;
  }

  void end_file() {
    writer_->finish();
    parts_.push_back({name_, writer_->content_id(), samples_, writer_->file_bytes()});
    writer_.reset();
  }

  std::filesystem::path path_;
  std::int64_t most_bytes_;
  PackedWriterOptions options_;
  std::string stem_, name_;
  std::unique_ptr<PackedWriter> writer_;
  std::int64_t bytes_ = 0, samples_ = 0;  // in the file being written
  std::vector<Part> parts_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<SampleStore> open_manifest(const std::filesystem::path& path, const PackedOptions& options) {
  return std::make_unique<ManifestStore>(path, options);
}

std::vector<std::filesystem::path> manifest_files(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  for (const Part& part : read_parts(path)) files.push_back(path.parent_path() / part.name);
  return files;
}

std::unique_ptr<SampleWriter> create_manifest(const std::filesystem::path& path, std::int64_t file_bytes,
                                              const PackedWriterOptions& options) {
  return std::make_unique<ManifestWriter>(path, file_bytes, options);
}

}  // namespace athanor
