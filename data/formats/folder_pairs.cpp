#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "data/formats/detail/image_files.h"
#include "data/formats/detail/sample_table.h"
#include "data/formats/table.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using std::filesystem::path;
constexpr char kFormat[] = "folder pairs";

/// The image files of a folder and its sub-folders, by name without suffix.
using Files = std::map<std::string, std::string>;

template <class... Args>
[[noreturn]] void fail(const path& folder, fmt::format_string<Args...> message, Args&&... args) {
  detail::fail<IoError>("{}: {}: {}", kFormat, folder.string(),
                        fmt::format(message, std::forward<Args>(args)...));
}

Files files_of(const path& folder, const std::string& part, std::vector<Unused>& unused) {
  Files files;
  const detail::ImageFiles found = detail::find_images(folder / part, kFormat, part + '/');
  for (const detail::ImageFiles::File& file : found.files) {
    const auto [at, is_new] = files.try_emplace(path(file.name).replace_extension().string(), file.name);
    if (!is_new)
      fail(folder, "{}/ must have one file per name, but has {} and {}", part, at->second, file.name);
  }
  add_unused(unused, found.unused);
  return files;
}

void must_have_all(const path& folder, const std::string& part, const Files& files, const std::string& of,
                   const Files& others) {
  for (const auto& [stem, file] : others) {
    if (!files.contains(stem))
      fail(folder, "{}/{} must have a file of the same name in {}/, but has none", of, file, part);
  }
}

}  // namespace

bool is_folder_pairs(const path& folder) {
  std::error_code error;
  const auto has = [&](const char* name) { return std::filesystem::is_directory(folder / name, error); };
  return has("images") && (has("masks") || has("targets"));
}

std::unique_ptr<Dataset> open_folder_pairs(const path& folder) {
  struct Part {
    std::string folder;
    Files files;
  };
  std::map<std::string, Part> parts;  // by field name
  std::vector<Unused> unused;
  for (const std::string& part :
       detail::folders_among(detail::names_in(folder, kFormat), folder, "the folders", unused)) {
    Files files = files_of(folder, part, unused);
    const bool must = part == "images" || part == "masks" || part == "targets";
    if (files.empty() && must)
      fail(folder, "{}/ must contain .png, .webp, .jpg or .jpeg files, but has none", part);
    if (files.empty()) {
      count_unused(unused, "folders without images", part);
      continue;
    }
    const std::string field = part.ends_with('s') ? part.substr(0, part.size() - 1) : part;
    if (field == "label")
      fail(folder, "{}/ must not contain images: a label is a class; are they masks or targets?", part);
    const auto [at, is_new] = parts.try_emplace(field, Part{part, std::move(files)});
    if (!is_new)
      fail(folder, "each folder must be a separate field, but {}/ and {}/ are both '{}'", at->second.folder,
           part, field);
  }
  const Files& images = parts["image"].files;
  for (const auto& [field, part] : parts) {
    must_have_all(folder, part.folder, part.files, "images", images);
    must_have_all(folder, "images", images, part.folder, part.files);
  }
  auto table = std::make_unique<detail::SampleTable>(fmt::format("{}: {}", kFormat, folder.string()), folder);
  for (const auto& [stem, image] : images) {
    detail::SampleTable::Row row{{"image", "images/" + image}};
    for (const auto& [field, part] : parts) {
      if (field != "image") row[field] = part.folder + "/" + part.files.at(stem);
    }
    table->add_row(row, "images/" + image);
  }
  table->finish();
  table->set_unused(std::move(unused));
  return table;
}

}  // namespace athanor
