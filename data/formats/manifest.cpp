#include "data/formats/manifest.h"

#include <nlohmann/json.hpp>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/file_bytes.h"
#include "data/formats/join.h"
#include "data/formats/shard_writer.h"
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

void write_manifest(const std::filesystem::path& path, const std::vector<ShardWriter::Shard>& shards) {
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  for (const ShardWriter::Shard& shard : shards) {
    const PackedStore store(shard.path);
    files.push_back({{"name", shard.path.filename().string()},
                     {"samples", shard.samples},
                     {"bytes", store.file_bytes()},
                     {"content_id", store.content_id()}});
  }
  const nlohmann::ordered_json all{{"format", kManifestFormat}, {"version", 1}, {"files", files}};
  write_atomically(path, all.dump(2) + "\n");
}

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
  const std::string name = path.filename().string();
  ATH_CHECK(name.ends_with(kSuffix) && name.size() > sizeof kSuffix - 1,
            "manifest: the name must end in {}, but is {}", kSuffix, name);
  ATH_CHECK(file_bytes > 0, "manifest: file_bytes must be positive, but got {}", file_bytes);
  return std::make_unique<ShardWriter>(ShardWriter::Options{
      .stem = path.parent_path() / name.substr(0, name.size() - (sizeof kSuffix - 1)),
      .suffix = ".athp",
      .shard_bytes = file_bytes,
      .create =
          [options](const std::filesystem::path& at) { return std::make_unique<PackedWriter>(at, options); },
      .finish = [path](const std::vector<ShardWriter::Shard>& shards) { write_manifest(path, shards); },
      .list = path});
}

}  // namespace athanor
