#include "data/formats/npy.h"

#include "data/formats/detail/labelled_store.h"
#include "data/formats/detail/npy_header.h"
#include "data/formats/detail/writing.h"

namespace athanor {
namespace {

constexpr char kNpyAdvice[] = "write it again with numpy.save";

std::filesystem::path labels_of(const std::filesystem::path& images) {
  return detail::labels_beside(images, "npy",
                               {{"images", "labels"}, {"image", "label"}, {"x", "y"}, {"X", "Y"}});
}

}  // namespace

std::unique_ptr<Dataset> open_npy(const std::filesystem::path& images, LabelKind kind) {
  const std::filesystem::path beside = labels_of(images);
  const auto file = std::make_shared<detail::FileBytes>(images, "npy", kNpyAdvice);
  const detail::FileBytes labels(beside, "npy", kNpyAdvice);
  if (kind != LabelKind::classes) {
    const detail::NpyPair pair = detail::check_npy_images(*file, file->size());
    const std::vector<std::int64_t> none(static_cast<std::size_t>(pair.count));
    return detail::with_labels(detail::dense_store(file, pair.image_data, pair.spec, none),
                               detail::npy_numbers(labels, pair.count));
  }
  const detail::NpyPair pair = detail::check_npy(*file, file->size(), labels, labels.size());
  return detail::dense_store(file, pair.image_data, pair.spec, detail::npy_labels(pair, labels));
}

std::unique_ptr<SampleWriter> create_npy(const std::filesystem::path& images) {
  return detail::create_dense(images, detail::UniformSamples("npy"), detail::npy_images_header,
                              {{labels_of(images), [](const detail::UniformSamples& samples) {
                                  return detail::npy_labels_file(samples.labels());
                                }}});
}

}  // namespace athanor
