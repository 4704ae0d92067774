#include "data/formats/npy.h"

#include <array>

#include "data/formats/detail/npy_header.h"
#include "data/formats/detail/writing.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr char kAdvice[] = "write it again with numpy.save";

std::filesystem::path labels_beside(const std::filesystem::path& images) {
  std::string name = images.stem().string();
  constexpr std::array<std::array<std::string_view, 2>, 4> kPairs{
      {{"images", "labels"}, {"image", "label"}, {"x", "y"}, {"X", "Y"}}};
  for (const auto& [from, to] : kPairs) {
    if (const std::size_t at = name.rfind(from); at != std::string::npos) {
      name.replace(at, from.size(), to);
      return images.parent_path() / (name + images.extension().string());
    }
  }
  detail::fail<>(
      "npy: the name of a file of images must have the word images, image or x in it, but is {}; or name "
      "the file of labels too",
      images.string());
}

}  // namespace

std::unique_ptr<Dataset> open_npy(const std::filesystem::path& images, const NpyOptions& options) {
  detail::check_classes(options.classes, "npy");
  const std::filesystem::path beside = options.labels.empty() ? labels_beside(images) : options.labels;
  const auto file = std::make_shared<detail::FileBytes>(images, "npy", kAdvice);
  const detail::FileBytes labels(beside, "npy", kAdvice);
  detail::NpyPair pair = detail::check_npy(*file, file->size(), labels, labels.size());
  std::vector<std::int64_t> values = detail::npy_labels(pair, labels, options.classes);
  return std::make_unique<detail::DenseStore>(file, pair.images.data, pair.spec, std::move(values));
}

std::unique_ptr<SampleWriter> create_npy(const std::filesystem::path& images,
                                         const std::filesystem::path& labels) {
  const detail::PairFormat npy{"npy", detail::npy_images_header, detail::npy_labels_file};
  return detail::create_pair(npy, images, labels.empty() ? labels_beside(images) : labels);
}

}  // namespace athanor
