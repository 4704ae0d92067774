#include "data/formats/manifest.h"

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/file_bytes.h"
#include "data/formats/join.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"

namespace athanor {
namespace {

constexpr char kManifestFormat[] = "athanor manifest", kSuffix[] = ".athp.json";

struct File {
  std::string name, content_id;
  std::int64_t samples = 0, bytes = 0;
};

template <class... Args>
[[noreturn]] void fail_manifest(const std::filesystem::path& path, fmt::format_string<Args...> format,
                                Args&&... args) {
  detail::fail<IoError>("manifest: {}: {}", path.string(), fmt::format(format, std::forward<Args>(args)...));
}

std::vector<File> read_files(const std::filesystem::path& path) {
  const std::vector<std::byte> text = detail::FileBytes(path, "manifest", "pack the set again").all();
  std::vector<File> list;
  try {
    const nlohmann::json all = nlohmann::json::parse(detail::text_of(text));
    if (all.at("format") != kManifestFormat || all.at("version") != 1) {
      fail_manifest(path, "must have \"format\": \"{}\" and \"version\": 1, but has {} and {}",
                    kManifestFormat, detail::shown(all.at("format")), detail::shown(all.at("version")));
    }
    for (const nlohmann::json& entry : all.at("files")) {
      for (const char* number : {"samples", "bytes"}) {
        if (!entry.at(number).is_number_integer())
          fail_manifest(path, "\"{}\" must be a whole number", number);
      }
      list.push_back({entry.at("name").get<std::string>(), entry.at("content_id").get<std::string>(),
                      entry.at("samples").get<std::int64_t>(), entry.at("bytes").get<std::int64_t>()});
      // A manifest from an untrusted source must not refer to other folders.
      const std::string& name = list.back().name;
      if (name.empty() || name.find('/') != std::string::npos || printable(name) != name) {
        fail_manifest(path,
                      "files must lie in the manifest's folder and have printable names, but \"name\" is {}",
                      entry.at("name").dump());
      }
    }
  } catch (const nlohmann::json::exception& error) {
    fail_manifest(path, "must be a valid manifest, but got: {}", printable(error.what()));
  }
  return list;
}

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
    std::error_code ignored;
    // The manifest may exist although finish() has failed: if flushing its folder failed.
    if (finished_ || std::filesystem::exists(path_, ignored)) return;
    writer_.reset();
    for (const File& file : files_) std::filesystem::remove(path_.parent_path() / file.name, ignored);
  }

  void add(const StoredSample& sample) override {
    const std::int64_t bytes = sample.stored_bytes();
    if (writer_ && bytes_ > 0 && bytes > most_bytes_ - bytes_) end_file();
    if (!writer_) begin_file();
    writer_->add(sample);
    bytes_ += bytes;
    ++samples_;
  }

  void finish() override {
    if (writer_ || files_.empty()) {
      if (!writer_) begin_file();
      end_file();
    }
    nlohmann::ordered_json files = nlohmann::ordered_json::array();
    for (const File& file : files_) {
      files.push_back({{"name", file.name},
                       {"samples", file.samples},
                       {"bytes", file.bytes},
                       {"content_id", file.content_id}});
    }
    const nlohmann::ordered_json all{{"format", kManifestFormat}, {"version", 1}, {"files", files}};
    write_atomically(path_, all.dump(2) + "\n");
    finished_ = true;
  }

 private:
  static void check_absent(const std::filesystem::path& path) {
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      fail_manifest(path, "must not exist yet: remove the set, or choose another name");
    }
  }

  void begin_file() {
    name_ = fmt::format("{}-{:05}.athp", stem_, files_.size());
    check_absent(path_.parent_path() / name_);
    writer_ = std::make_unique<PackedWriter>(path_.parent_path() / name_, options_);
    bytes_ = samples_ = 0;
  }

  void end_file() {
    writer_->finish();
    files_.push_back({name_, writer_->content_id(), samples_, writer_->file_bytes()});
    writer_.reset();
  }

  std::filesystem::path path_;
  std::int64_t most_bytes_;
  PackedWriterOptions options_;
  std::string stem_, name_;
  std::unique_ptr<PackedWriter> writer_;
  std::int64_t bytes_ = 0, samples_ = 0;  // in the file being written
  std::vector<File> files_;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<Dataset> open_manifest(const std::filesystem::path& path, const PackedOptions& options) {
  std::vector<std::unique_ptr<Dataset>> files;
  for (const File& file : read_files(path)) {
    auto store = std::make_unique<PackedStore>(path.parent_path() / file.name, options);
    if (store->content_id() != file.content_id || store->size() != file.samples ||
        store->file_bytes() != file.bytes) {
      fail_manifest(path, "{} must have content id {}, {} samples and {} bytes, but has {}, {} and {}",
                    detail::printable(file.name), detail::printable(file.content_id), file.samples,
                    file.bytes, store->content_id(), store->size(), store->file_bytes());
    }
    files.push_back(std::move(store));
  }
  if (files.empty()) fail_manifest(path, "must list at least one file, but lists none");
  try {
    return join(std::move(files));
  } catch (const ArgumentError& error) {
    fail_manifest(path, "{}", error.what());
  }
}

std::vector<std::filesystem::path> manifest_files(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> files;
  for (const File& file : read_files(path)) files.push_back(path.parent_path() / file.name);
  return files;
}

std::unique_ptr<SampleWriter> create_manifest(const std::filesystem::path& path, std::int64_t file_bytes,
                                              const PackedWriterOptions& options) {
  return std::make_unique<ManifestWriter>(path, file_bytes, options);
}

}  // namespace athanor
