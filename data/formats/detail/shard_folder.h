#pragma once

#include <filesystem>
#include <initializer_list>
#include <vector>

#include "data/dataset.h"

// Which files are shards, by their names.

namespace athanor::detail {

/// Whether the name ends in one of these, which are in lower case, in any case.
bool ends_with(const std::filesystem::path& at, std::initializer_list<const char*> any_of);
bool is_folder(const std::filesystem::path& at);

/// .athp.json.
bool is_manifest(const std::filesystem::path& at);
/// .tfrecord, .tfrecords, or the usual name of a shard, train-00000-of-01024, possibly with a suffix that is
/// not another format's.
bool is_tfrecord(const std::filesystem::path& at);

/// The shards in a folder without folders, in byte order: tar archives, TFRecord files and packed files, or
/// the manifests of packed files in their place. `beside` counts the other files. Throws IoError on a
/// manifest that cannot be read.
std::vector<std::filesystem::path> shards_in(const std::filesystem::path& folder,
                                             std::vector<Unused>& beside);
/// Whether there are any. Reads no file.
bool is_shard_folder(const std::filesystem::path& at);

}  // namespace athanor::detail
