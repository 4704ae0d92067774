#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace athanor::tool {

struct Pictures {
  std::vector<std::filesystem::path> files;
  std::vector<Unused> unused;  ///< what folders hold besides; a folder that cannot be read is among it
};
/// The files named by arguments, in order: files themselves; for a folder, the images in it, at any depth, in
/// byte order, as a data set has them; for "-", names on standard input, each ended by a zero byte or, if
/// there is none, a line's end.
Pictures pictures_of(const std::vector<std::string>& arguments);

}  // namespace athanor::tool
