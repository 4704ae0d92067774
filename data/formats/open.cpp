#include "data/formats/open.h"

#include <initializer_list>
#include <span>
#include <utility>

#include "data/formats/cifar.h"
#include "data/formats/image_folder.h"
#include "data/formats/manifest.h"
#include "data/formats/mnist.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "data/in_memory.h"
#include "tensor/error.h"

namespace athanor {
namespace {

/// Images in memory as a store of raw samples.
class InMemoryStore final : public SampleStore {
 public:
  InMemoryStore(std::unique_ptr<InMemoryDataset> images, std::filesystem::path path)
      : images_(std::move(images)), path_(std::move(path)) {}

  std::int64_t size() const override { return images_->size(); }
  const ImageSpec& spec() const override { return images_->spec(); }
  StoredSample fetch(std::int64_t index, std::vector<std::byte>& /*scratch*/) const override {
    ATH_CHECK(index >= 0 && index < size(), "dataset: index must be in [0, {}), but got {}", size(), index);
    const auto i = static_cast<std::size_t>(index), bytes = static_cast<std::size_t>(spec().bytes());
    return {std::as_bytes(images_->pixels().subspan(i * bytes, bytes)),
            Codec::raw,
            spec().height,
            spec().width,
            spec().channels,
            images_->labels()[i]};
  }
  std::string where(std::int64_t index) const override {
    return fmt::format("{}, image {}", path_.string(), index);
  }
  bool resident() const override { return true; }

 private:
  std::unique_ptr<InMemoryDataset> images_;
  std::filesystem::path path_;
};

/// One format: how a path of it looks, and how it is opened.
struct Format {
  const char* name;
  bool (*matches)(const std::filesystem::path& path);
  std::unique_ptr<SampleStore> (*open)(const std::filesystem::path& path, const OpenOptions& options);
};

bool holds(const std::filesystem::path& folder, std::initializer_list<const char*> any_of) {
  std::error_code error;
  for (const char* name : any_of) {
    if (std::filesystem::exists(folder / name, error)) return true;
    if (std::filesystem::exists(folder / (std::string(name) + ".gz"), error)) return true;
  }
  return false;
}

bool is_manifest(const std::filesystem::path& path) {
  return path.filename().string().ends_with(".athp.json");
}

/// A folder for each class: the last to be asked, for others may have folders in them, too.
bool has_folders(const std::filesystem::path& path) {
  std::error_code error;
  for (std::filesystem::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
    if (at->is_directory(error)) return true;
  }
  return false;
}

template <auto kRead>
std::unique_ptr<SampleStore> read_all(const std::filesystem::path& path, const OpenOptions& options) {
  return std::make_unique<InMemoryStore>(kRead(path, options.part), path);
}

constexpr Format kFormats[] = {
    {"packed file", PackedStore::recognises,
     [](const std::filesystem::path& path, const OpenOptions& options) -> std::unique_ptr<SampleStore> {
       return std::make_unique<PackedStore>(path, PackedOptions{.check = options.check});
     }},
    {"manifest of packed files", is_manifest,
     [](const std::filesystem::path& path, const OpenOptions& options) {
       return open_manifest(path, {.check = options.check});
     }},
    {"MNIST folder",
     [](const std::filesystem::path& path) {
       return holds(path, {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"});
     },
     read_all<mnist>},
    {"CIFAR-10 folder",
     [](const std::filesystem::path& path) {
       return holds(path, {"data_batch_1.bin", "test_batch.bin"});
     },
     read_all<cifar10>},
    {"CIFAR-100 folder",
     [](const std::filesystem::path& path) {
       return holds(path, {"train.bin", "test.bin"});
     },
     read_all<cifar100>},
    {"image folder", has_folders,
     [](const std::filesystem::path& path, const OpenOptions& /*options*/) -> std::unique_ptr<SampleStore> {
       return std::make_unique<ImageFolder>(path);
     }},
};

const Format& find_format(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    detail::fail<IoError>("data: {} must be a file or folder, but there is none", path.string());
  }
  for (const Format& format : kFormats) {
    if (format.matches(path)) return format;
  }
  std::vector<const char*> names;
  for (const Format& format : kFormats) names.push_back(format.name);
  detail::fail<IoError>("data: {} must be one of: {}; but is none of them", path.string(),
                        fmt::join(names, ", "));
}

}  // namespace

std::unique_ptr<SampleStore> open_samples(const std::filesystem::path& path, const OpenOptions& options) {
  return find_format(path).open(path, options);
}

std::string format_of(const std::filesystem::path& path) {
  return find_format(path).name;
}

std::unique_ptr<SampleWriter> create_samples(const std::filesystem::path& path,
                                             const CreateOptions& options) {
  const PackedWriterOptions packed{
      .threads = options.threads, .classes = options.classes, .class_names = options.class_names};
  if (is_manifest(path)) return create_manifest(path, options.file_bytes, packed);
  if (!path.has_extension()) return std::make_unique<ImageFolderWriter>(path, options.class_names);
  if (path.extension() == ".athp") return std::make_unique<PackedWriter>(path, packed);
  detail::fail<>(
      "data: {} must end in .athp (a packed file) or .athp.json (several), or without a suffix (a folder of "
      "images), but ends in '{}'",
      path.string(), path.extension().string());
}

}  // namespace athanor
