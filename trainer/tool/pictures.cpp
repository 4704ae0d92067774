#include "trainer/tool/pictures.h"

#include <algorithm>
#include <array>
#include <iostream>

#include "tensor/error.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

bool is_called_like_a_picture(const fs::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  static constexpr std::array<std::string_view, 5> kEndings{".jpg", ".jpeg", ".jpe", ".png", ".webp"};
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

void append_folder(const fs::path& folder, std::vector<fs::path>& files) {
  const std::size_t before = files.size();
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored) && is_called_like_a_picture(at->path())) files.push_back(at->path());
  }
  if (error)
    detail::fail<IoError>("{} must be a folder that can be read, but got: {}", folder.string(),
                          error.message());
  std::sort(files.begin() + static_cast<std::ptrdiff_t>(before), files.end());
}

}  // namespace

std::vector<fs::path> pictures_of(const std::vector<std::string>& arguments) {
  std::vector<fs::path> files;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    if (argument == "-") {
      for (std::string line; std::getline(std::cin, line);) {
        if (!line.empty()) files.emplace_back(line);
      }
    } else if (fs::is_directory(argument, ignored)) {
      append_folder(argument, files);
    } else {
      files.emplace_back(argument);
    }
  }
  return files;
}

}  // namespace athanor::tool
