#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "data/digits.h"
#include "data/formats/image_folder.h"

namespace athanor {

/// The folders of two sets of images, each with a folder for each class, or of shards.
struct SetFolders {
  std::filesystem::path train, held_out;
};
/// Those in a folder that holds both: train or training, and val, valid, validation, dev, eval, evaluation,
/// test or testing, in any case; of several the first of these. nullopt for any other folder.
std::optional<SetFolders> sets_in(const std::filesystem::path& folder);

/// The set that a word of a file's name says, of those above: test for imagenet-val-000.tar. nullopt if none.
std::optional<Split> set_in_name(std::string_view file);

/// What such a folder holds besides `used`, folders in it: other sets, files, folders that are no set.
std::vector<Unused> beside_sets(const std::filesystem::path& folder,
                                const std::vector<std::filesystem::path>& used);

/// Opens the folder of a set; `beside` is what is not used around it.
using OpenSet = std::function<std::unique_ptr<Dataset>(const std::filesystem::path& set,
                                                       const std::vector<Unused>& beside)>;
/// One of the sets in a folder that sets_in() knows. The held-out set has the numbers that the classes have
/// in the training set; throws IoError if it has others.
std::unique_ptr<Dataset> open_set(const std::filesystem::path& folder, Split split, const OpenSet& open);
/// The images of a folder with a folder for each class. Throws IoError if one of them has the name of a set:
/// that is no class, even if its partner is missing, or has no folders for classes.
std::unique_ptr<Dataset> open_classes(const std::filesystem::path& folder);
/// Whether a folder has other folders in it, but for hidden ones and those that programs make.
bool has_folders(const std::filesystem::path& folder);

}  // namespace athanor
