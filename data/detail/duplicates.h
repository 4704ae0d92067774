#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor::detail {

/// Images of one set whose bytes are also those of an image of another.
struct Duplicates {
  std::int64_t count = 0;
  std::vector<std::string> pairs;  ///< of the first three: "val/cat/a.jpg = train/cat/b.jpg"
};

/// The images of `held_out` that are also in `train`, byte for byte as their files have them. Reads, by
/// `threads` threads, only images of a size that both sets have. Looks for none in sets of more than 50,000
/// images together, or with more than 1 GiB to read; an image that is in no file, or that cannot be read, is
/// no duplicate.
Duplicates find_duplicates(const Dataset& train, const Dataset& held_out, int threads);

}  // namespace athanor::detail
