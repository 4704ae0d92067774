#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"

// Sets in several files, which are called shards.

namespace athanor {

/// The files and folders that a text names, at least one, in its order:
///   what exists is itself, whatever its name;
///   A,B are those of A, then those of B; a comma within a name is written \,
///   x-{000..147}.tar, {0..9..3} and {a,b}, also nested, are as in bash: every one must exist;
///   *, ? and [a-z] match names as in the shell, in byte order, and must match at least one.
/// Throws IoError naming all that are missing, and if a name between commas is empty.
std::vector<std::filesystem::path> shards_of(const std::filesystem::path& text);

/// Whether a text may name several, because nothing of that name exists: it has a comma, or what shards_of()
/// expands.
bool names_several(const std::filesystem::path& text);

/// The text that names what each of `texts` does, in their order.
std::filesystem::path joined_shards(const std::vector<std::string>& texts);

/// The text with each of its relative names below `folder`.
std::filesystem::path shards_below(const std::filesystem::path& folder, const std::filesystem::path& text);

struct ShardOptions {
  int threads = 1;                  ///< that open; above 1, opening must be thread-safe
  bool keep_damaged = false;        ///< a shard that cannot be opened is one unreadable_sample()
  std::vector<Unused> beside = {};  ///< what was found beside the shards and is not used
};

/// Opens a shard; a table of several labels with those of these names in this order, without names its own.
using OpenShard = std::function<std::unique_ptr<Dataset>(const std::filesystem::path& shard,
                                                         const std::vector<std::string>& label_names)>;

/// Opens each shard, several at a time, and joins them: join(). Classes with names, and several labels, are
/// matched by name, and numbered in byte order if shards have different ones. Throws what `open` throws, of
/// several the first in order, and IoError naming a shard that does not fit the others.
std::unique_ptr<Dataset> open_shards(const std::vector<std::filesystem::path>& shards, const OpenShard& open,
                                     const ShardOptions& options = {});

}  // namespace athanor
