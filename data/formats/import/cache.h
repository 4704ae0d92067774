#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/dataset.h"

namespace athanor {

/// Samples that can only be read in sequence: for a format that is imported, not trained from directly.
class SampleSequence {
 public:
  SampleSequence() = default;
  virtual ~SampleSequence() = default;
  SampleSequence(const SampleSequence&) = delete;
  SampleSequence& operator=(const SampleSequence&) = delete;

  virtual std::int64_t size() const = 0;
  /// As Dataset::spec().
  virtual const ImageSpec& spec() const = 0;
  /// The next of size() samples; valid until the next call. Throws IoError naming the file.
  virtual StoredSample next() = 0;
};

/// Called with one line before a file is packed into the cache: which, how large, where to.
using ImportNotice = std::function<void(const std::string& line)>;

/// The cache folder: athanor/imported below $XDG_CACHE_HOME, else below ~/.cache, else an IoError.
std::filesystem::path import_folder();

/// The samples of `path` in any order. The first call reads them with `open` and packs them into
/// import_folder(), atomically; later calls only open the packed file. It is repacked if the source's size or
/// time or `how` (the reading options) has changed, or if it is damaged: a fetch() that finds wrong samples
/// removes it. Processes that open the same file wait for the one that packs it. Throws IoError.
std::unique_ptr<Dataset> open_imported(const std::filesystem::path& path, std::string_view how,
                                       const std::function<std::unique_ptr<SampleSequence>()>& open,
                                       const ImportNotice& on_import = {});

}  // namespace athanor
