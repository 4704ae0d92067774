#include "data/formats/detail/shard_folder.h"

#include <algorithm>
#include <set>
#include <string>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "data/formats/manifest.h"

namespace athanor::detail {
namespace {

using std::filesystem::path;

bool is_numbered_shard(const path& at) {
  const std::string name = at.filename().string();
  const auto digit = [&](std::size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  const std::size_t of = name.rfind("-of-");
  if (of == std::string::npos || of == 0 || !digit(of - 1) || !digit(of + 4)) return false;
  return !codec_named(name) && !ends_with(at, {".athp", ".athp.json", ".npy", ".npz", ".h5", ".hdf5", ".tar",
                                               ".csv", ".jsonl", ".json", ".txt", ".mdb", ".bin"});
}

/// The names of shards in a folder without folders, also of those that a manifest lists.
std::vector<path> named_shards_in(const path& folder, std::vector<Unused>& beside) {
  std::vector<path> shards;
  for (const std::string& name : is_folder(folder) ? names_in(folder, "data") : std::vector<std::string>()) {
    const path at = folder / name;
    if (name.starts_with('.') || is_made_by_programs(name)) continue;
    if (is_folder(at)) return {};
    if (is_manifest(at) || is_tfrecord(at) || ends_with(at, {".tar", ".athp"})) {
      shards.push_back(at);
    } else {
      count_unused(beside, "files beside the shards", name);
    }
  }
  return shards;
}

}  // namespace

bool ends_with(const path& at, std::initializer_list<const char*> any_of) {
  const std::string name = lower_case(at.filename().string());
  return std::any_of(any_of.begin(), any_of.end(),
                     [&](const char* suffix) { return name.ends_with(suffix); });
}

bool is_folder(const path& at) {
  std::error_code error;
  return std::filesystem::is_directory(at, error);
}

bool is_manifest(const path& at) {
  return ends_with(at, {".athp.json"});
}

bool is_tfrecord(const path& at) {
  return ends_with(at, {".tfrecord", ".tfrecords"}) || (is_numbered_shard(at) && !is_folder(at));
}

std::vector<path> shards_in(const path& folder, std::vector<Unused>& beside) {
  std::vector<path> shards = named_shards_in(folder, beside);
  std::set<path> listed;  // in manifests
  for (const path& at : shards)
    if (is_manifest(at))
      for (path& file : manifest_files(at)) listed.insert(std::move(file));
  std::erase_if(shards, [&](const path& at) { return listed.contains(at); });
  return shards;
}

bool is_shard_folder(const path& at) {
  std::vector<Unused> ignored;
  return !named_shards_in(at, ignored).empty();
}

}  // namespace athanor::detail
