#include "data/formats/set_folders.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "data/formats/detail/shard_folder.h"
#include "data/relabelled.h"
#include "tensor/base/error.h"

namespace athanor {

using std::filesystem::path;

bool has_folders(const path& at) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(at, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with('.') && !detail::is_made_by_programs(name) && entry->is_directory(error))
      return true;
  }
  return false;
}

namespace {

/// Names of folders of a set, in any case. Of several in one folder, the first counts.
constexpr std::string_view kTrain[]{"train", "training"};
constexpr std::string_view kHeldOut[]{"val",  "valid",      "validation", "dev",
                                      "eval", "evaluation", "test",       "testing"};

bool is_set(const path& at) {
  return has_folders(at) || detail::is_shard_folder(at);
}

/// The set of this name, in lower case.
std::optional<Split> set_of(std::string_view name) {
  if (std::ranges::find(kTrain, name) != std::end(kTrain)) return Split::train;
  if (std::ranges::find(kHeldOut, name) != std::end(kHeldOut)) return Split::test;
  return std::nullopt;
}

/// Whether a folder has the name of a set.
bool is_named_as_set(const std::string& folder) {
  return set_of(detail::lower_case(folder)).has_value();
}

}  // namespace

std::optional<Split> set_in_name(std::string_view file) {
  const std::string name = detail::lower_case(file);
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  for (auto at = name.begin(); at != name.end();) {
    const auto first = std::find_if(at, name.end(), is_letter);
    at = std::find_if_not(first, name.end(), is_letter);
    if (const auto set = set_of({first, at})) return set;
  }
  return std::nullopt;
}

std::optional<SetFolders> sets_in(const path& folder) {
  std::error_code error;
  if (!std::filesystem::is_directory(folder, error)) return std::nullopt;
  const std::vector<std::string> all = detail::names_in(folder, "image folder");
  const auto first_of = [&](std::span<const std::string_view> names) {
    for (const std::string_view name : names)
      for (const std::string& one : all)
        if (detail::lower_case(one) == name && is_set(folder / one)) return folder / one;
    return path();
  };
  const SetFolders sets{first_of(kTrain), first_of(kHeldOut)};
  if (sets.train.empty() || sets.held_out.empty()) return std::nullopt;
  return sets;
}

std::vector<Unused> beside_sets(const path& folder, const std::vector<path>& used) {
  std::vector<std::string> names = detail::names_in(folder, "image folder");
  std::erase_if(names, [&](const std::string& name) {
    return std::any_of(used.begin(), used.end(), [&](const path& one) {
      std::error_code error;
      return std::filesystem::equivalent(one, folder / name, error);
    });
  });
  std::vector<Unused> unused;
  for (const std::string& name : detail::folders_among(names, folder, "the folders of sets", unused)) {
    count_unused(unused, is_named_as_set(name) ? "folders of other sets" : "folders beside those of sets",
                 name);
  }
  return unused;
}

std::unique_ptr<Dataset> open_set(const path& folder, Split split, const OpenSet& open) {
  const SetFolders sets = *sets_in(folder);
  if (split == Split::train) return open(sets.train, beside_sets(folder, {sets.train}));
  std::unique_ptr<Dataset> images = open(sets.held_out, beside_sets(folder, {sets.held_out}));
  const std::vector<std::string> names = open(sets.train, {})->class_names();
  if (images->class_names() == names) return images;
  try {
    return std::make_unique<Relabelled>(std::move(images), names);
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("data: {}: {}", sets.held_out.string(), error.what());
  }
}

std::unique_ptr<Dataset> open_classes(const path& folder) {
  std::error_code error;
  path set, flat;
  for (const std::string& name : detail::names_in(folder, "image folder"))
    if (is_named_as_set(name) && std::filesystem::is_directory(folder / name, error))
      (has_folders(folder / name) ? set : flat) = folder / name;
  if (set.empty()) return std::make_unique<ImageFolder>(folder);
  if (flat.empty())
    detail::fail<IoError>(
        "image folder: {} must have another set beside it, train or val, with a folder for each class, but "
        "has none; name one such set, or two with --train and --val (if it is a class, move its images out "
        "of their folders)",
        set.string());
  detail::fail<IoError>(
      "image folder: {} must have a folder for each class, as {} has, but has none; move its images into "
      "such folders, or name {} alone",
      flat.string(), set.string(), set.string());
}

}  // namespace athanor
