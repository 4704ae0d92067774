#include "tool/pictures.h"

#include <algorithm>
#include <array>
#include <iostream>

#include "data/formats/detail/file_bytes.h"
#include "tensor/error.h"

namespace athanor::tool {
namespace {

namespace fs = std::filesystem;

bool is_called_like_a_picture(const fs::path& file) {
  std::string ending = file.extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); });
  static constexpr std::array<std::string_view, 4> kEndings{".jpg", ".jpeg", ".jpe", ".png"};
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

PictureReader::PictureReader(const ModelInfo& info)
    : info_(info),
      transform_{
          .height = info.images.height, .width = info.images.width, .shorter_side = info.shorter_side} {
  ATH_CHECK(info.images.channels == 1 || info.images.channels == 3,
            "the model must take images of 1 or 3 channels, but takes {}", info.images.channels);
}

void PictureReader::read(const fs::path& file, std::span<std::uint8_t> pixels) {
  const detail::FileBytes bytes(file, "image", "it must be a JPEG or PNG");
  const StoredSample sample{.bytes = bytes.bytes(),
                            .codec = Codec::jpeg};  // or a PNG, which its first bytes say
  const bool grey = info_.images.channels == 1;
  if (grey) rgb_.resize(pixels.size() * 3);
  try {
    reader_.read(sample, transform_, {}, 3, grey ? std::span(rgb_) : pixels);
  } catch (const IoError& error) {
    detail::fail<IoError>("{}: {}", file.string(), error.what());
  }
  for (std::size_t i = 0; grey && i < pixels.size(); ++i) {  // ITU-R BT.601
    const int luma = 299 * rgb_[3 * i] + 587 * rgb_[3 * i + 1] + 114 * rgb_[3 * i + 2];
    pixels[i] = static_cast<std::uint8_t>((luma + 500) / 1000);
  }
}

}  // namespace athanor::tool
