#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "data/dataset.h"

namespace athanor {

/// Samples that come one after the other, and only so: a format that is imported, not trained from.
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

/// Told, in one line, that a file is about to be packed into the cache: which, how large, where to.
using ImportNotice = std::function<void(const std::string& line)>;

/// Where imported files lie: athanor/imported below $XDG_CACHE_HOME, else below ~/.cache, else an IoError.
std::filesystem::path import_folder();

/// The samples of `path` in any order. The first time `open` reads them, and they are packed into
/// import_folder(), whole or not at all; after that only the packed file is opened. It is made anew where
/// the file has another size or time than then, or `how` (options of the reading) is another, or the packed
/// file is damaged: one whose samples are not what was packed is removed by the fetch() that finds it.
/// Processes that open the same file wait for the one that packs it. Throws IoError.
std::unique_ptr<Dataset> open_imported(const std::filesystem::path& path, std::string_view how,
                                       const std::function<std::unique_ptr<SampleSequence>()>& open,
                                       const ImportNotice& on_import = {});

}  // namespace athanor
