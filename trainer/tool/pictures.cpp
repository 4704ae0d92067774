#include "trainer/tool/pictures.h"

#include <iostream>
#include <iterator>
#include <sstream>

#include "data/formats/detail/image_files.h"
#include "data/formats/shards.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

void append_folder(const fs::path& folder, Pictures& pictures) {
  const detail::ImageFiles found = detail::find_images(folder, "predict", folder.string() + '/', true);
  for (const detail::ImageFiles::File& file : found.files) pictures.files.push_back(folder / file.name);
  add_unused(pictures.unused, found.unused);
}

/// Names that zero bytes end, as of `find -print0`, or lines, whose end may be CR LF.
void append_list(std::istream& from, Pictures& pictures) {
  const std::string all{std::istreambuf_iterator<char>(from), {}};
  const char end = all.find('\0') != std::string::npos ? '\0' : '\n';
  std::istringstream names(all);
  for (std::string name; std::getline(names, name, end);) {
    if (end == '\n' && name.ends_with('\r')) name.pop_back();
    if (!name.empty()) pictures.files.emplace_back(name);
  }
}

}  // namespace

Pictures pictures_of(const std::vector<std::string>& arguments) {
  Pictures pictures;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    if (argument == "-") {
      append_list(std::cin, pictures);
      continue;
    }
    for (const fs::path& one : shards_of(argument)) {
      if (fs::is_directory(one, ignored)) {
        append_folder(one, pictures);
      } else {
        pictures.files.push_back(one);
      }
    }
  }
  return pictures;
}

}  // namespace athanor::tool
