#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/label_kind.h"

// Formats whose libraries damaged files can crash are not trained from: `athanor pack`, a process of its own,
// packs such a source once into a cache, and the packed file is opened instead.

namespace athanor {

/// Called with one line before a source is packed into the cache: which, how large, where to.
using ImportNotice = std::function<void(const std::string& line)>;

/// A cache folder: athanor/NAME below $XDG_CACHE_HOME, else below ~/.cache, else an IoError.
std::filesystem::path cache_folder(const std::string& name);
/// That of imported files.
std::filesystem::path import_folder();

/// The samples of `path` in any order. The first call packs them into import_folder() with the program
/// athanor, which lies beside the running one or on PATH, and which gets `fields` as its flag --fields, and
/// `labels` as --task; later calls only open the packed file. It is packed again if the size or time of one
/// of `files`, all those that are read, or `fields` or `labels` has changed, or if it is damaged: a reader
/// that finds a wrong sample removes it. Processes that open the same source wait for the one that packs it.
/// Throws IoError, with what athanor said.
std::unique_ptr<Dataset> open_imported(const std::filesystem::path& path,
                                       const std::vector<std::filesystem::path>& files,
                                       const std::string& fields, LabelKind labels,
                                       const ImportNotice& on_import = {});

}  // namespace athanor
