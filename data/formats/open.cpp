#include "data/formats/open.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "data/formats/cifar.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/image_files.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/import/hdf5.h"
#include "data/formats/lmdb.h"
#include "data/formats/manifest.h"
#include "data/formats/mnist.h"
#include "data/formats/npy.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "data/formats/raw.h"
#include "data/formats/table.h"
#include "data/formats/tar.h"
#include "data/formats/tfrecord.h"
#include "data/relabelled.h"
#include "tensor/error.h"
#include "tensor/regular_file.h"

namespace athanor {
namespace {

using std::filesystem::path;
using Store = std::unique_ptr<Dataset>;
using Writer = std::unique_ptr<SampleWriter>;

/// Names of a folder of held-out images, the first that is there counts.
constexpr std::array<const char*, 4> kHeldOut{"val", "valid", "validation", "test"};

bool ends_with(const path& at, std::initializer_list<const char*> any_of) {
  const std::string name = detail::lower_case(at.filename().string());
  return std::any_of(any_of.begin(), any_of.end(),
                     [&](const char* suffix) { return name.ends_with(suffix); });
}

bool holds(const path& folder, std::initializer_list<const char*> any_of) {
  std::error_code error;
  return std::any_of(any_of.begin(), any_of.end(), [&](const char* name) {
    return std::filesystem::exists(folder / name, error) ||
           std::filesystem::exists(folder / (std::string(name) + ".gz"), error);
  });
}

/// Whether the file has these bytes at that offset.
bool has(const path& at, std::string_view magic, std::uint64_t offset = 0) {
  std::array<std::byte, 16> bytes;
  const auto first = std::span(bytes).first(magic.size());
  return RegularFile(at).read_at(offset, first) == first.size() && detail::text_of(first) == magic;
}

bool is_manifest(const path& at) {
  return ends_with(at, {".athp.json"});
}

bool is_idx(const path& at) {
  const std::string name = at.filename().string();
  return name.find("idx3-ubyte") != std::string::npos || name.find("idx4-ubyte") != std::string::npos;
}

/// The usual name of a shard file: train-00000-of-01024, possibly with a suffix.
bool is_shard(const path& at) {
  std::error_code error;
  if (std::filesystem::is_directory(at, error)) return false;
  const std::string name = at.filename().string();
  const auto digit = [&](std::size_t i) { return i < name.size() && name[i] >= '0' && name[i] <= '9'; };
  const std::size_t of = name.rfind("-of-");
  return of != std::string::npos && of > 0 && digit(of - 1) && digit(of + 4);
}

/// A file of bare pixels is recognised by the files next to it.
bool is_raw(const path& at) {
  std::error_code error;
  return at.extension() == ".bin" && std::filesystem::exists(path(at).replace_extension(".json"), error);
}

bool is_folder(const path& at) {
  std::error_code error;
  return std::filesystem::is_directory(at, error);
}

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

/// A format: its test on a path, and its open function.
struct Format {
  const char* name;
  bool (*matches)(const path& at);
  Store (*open)(const path& at, const OpenOptions& options);
  bool has_parts = false;  ///< training and test
};

/// With the numbers that the classes have in train/.
Store open_held_out(const path& at, const path& held_out) {
  auto images = std::make_unique<ImageFolder>(held_out, beside_sets(at, {held_out}));
  const std::vector<std::string> names = ImageFolder(at / "train").class_names();
  if (images->class_names() == names) return images;
  try {
    return std::make_unique<Relabelled>(std::move(images), names);
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("image folder: {}: {}", held_out.string(), error.what());
  }
}

/// train/ with classes beside a val/ or test/ without any are no two classes.
void refuse_flat_held_out(const path& at) {
  if (!has_folders(at / "train")) return;
  for (const char* const name : kHeldOut)
    if (is_folder(at / name))
      detail::fail<IoError>(
          "image folder: {} must have a folder for each class, as {} has, but has none; move its images into "
          "such folders, or name {} alone",
          (at / name).string(), (at / "train").string(), (at / "train").string());
}

constexpr Format kFormats[] = {
    {"packed file", PackedStore::recognises,
     [](const path& at, const OpenOptions& options) -> Store {
       return std::make_unique<PackedStore>(at, PackedOptions{.check = options.check});
     }},
    {"manifest of packed files", is_manifest,
     [](const path& at, const OpenOptions& options) { return open_manifest(at, {.check = options.check}); }},
    {"NumPy array", [](const path& at) { return has(at, "\x93NUMPY"); },
     [](const path& at, const OpenOptions&) { return open_npy(at); }},
    {"NumPy archive", [](const path& at) { return ends_with(at, {".npz"}) && has(at, "PK"); },
     [](const path& at, const OpenOptions&) { return open_npz(at); }},
    {"HDF5 file", [](const path& at) { return has(at, "\x89HDF\r\n\x1a\n"); },
     [](const path& at, const OpenOptions& options) { return open_hdf5(at, {}, options.on_import); }},
    {"tar archive", [](const path& at) { return ends_with(at, {".tar"}) || has(at, "ustar", 257); },
     [](const path& at, const OpenOptions&) { return open_tar(at); }},
    {"table of samples",
     [](const path& at) {
       return ends_with(at, {".csv", ".jsonl"});
     },
     [](const path& at, const OpenOptions&) { return open_table(at); }},
    {"TFRecord file",
     [](const path& at) {
       return ends_with(at, {".tfrecord", ".tfrecords"}) || is_shard(at);
     },
     [](const path& at, const OpenOptions&) { return open_tfrecord(at); }},
    {"LMDB environment", [](const path& at) { return ends_with(at, {".mdb"}) || holds(at, {"data.mdb"}); },
     [](const path& at, const OpenOptions&) { return open_lmdb(at); }},
    {"IDX file", is_idx, [](const path& at, const OpenOptions&) { return open_idx(at); }},
    {"raw pixel file", is_raw, [](const path& at, const OpenOptions&) { return open_raw(at); }},
    {"MNIST folder",
     [](const path& at) {
       return holds(at, {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"});
     },
     [](const path& at, const OpenOptions& options) { return open_mnist(at, options.split); }, true},
    {"CIFAR-10 folder",
     [](const path& at) {
       return holds(at, {"data_batch_1.bin", "test_batch.bin"});
     },
     [](const path& at, const OpenOptions& options) { return open_cifar(at, 10, options.split); }, true},
    {"CIFAR-100 folder",
     [](const path& at) {
       return holds(at, {"train.bin", "test.bin"});
     },
     [](const path& at, const OpenOptions& options) { return open_cifar(at, 100, options.split); }, true},
    {"folders of images and masks or targets", is_folder_pairs,
     [](const path& at, const OpenOptions&) { return open_folder_pairs(at); }},
    {"image folders of a training and a held-out set",
     [](const path& at) { return held_out_beside_train(at).has_value(); },
     [](const path& at, const OpenOptions& options) -> Store {
       return options.split == Split::train
                  ? std::make_unique<ImageFolder>(at / "train", beside_sets(at, {at / "train"}))
                  : open_held_out(at, *held_out_beside_train(at));
     },
     true},
    // Last, as other formats may also be folders.
    {"image folder", is_folder,
     [](const path& at, const OpenOptions&) -> Store {
       refuse_flat_held_out(at);
       return std::make_unique<ImageFolder>(at);
     }},
};

const Format& find_format(const path& at) {
  std::error_code error;
  if (!std::filesystem::exists(at, error)) {
    detail::fail<IoError>("data: {} must be a file or folder, but there is none", at.string());
  }
  if (!std::filesystem::is_directory(at, error)) {
    const RegularFile file(at);
    if (!file.problem().empty()) detail::fail<IoError>("data: {} {}", at.string(), file.problem());
  }
  for (const Format& format : kFormats) {
    if (format.matches(at)) return format;
  }
  std::vector<const char*> names;
  for (const Format& format : kFormats) names.push_back(format.name);
  const std::string kind = std::filesystem::is_directory(at, error) ? "" : RegularFile(at).kind();
  detail::fail<IoError>("data: {} must be one of: {}; but is {}", at.string(), fmt::join(names, ", "),
                        kind.empty() ? "none of these" : kind);
}

}  // namespace

std::optional<path> held_out_beside_train(const path& folder) {
  if (!has_folders(folder / "train")) return std::nullopt;
  for (const char* const name : kHeldOut)
    if (has_folders(folder / name)) return folder / name;
  return std::nullopt;
}

std::vector<Unused> beside_sets(const path& folder, const std::vector<path>& used) {
  std::vector<Unused> unused;
  for (const std::string& name : detail::names_in(folder, "image folder")) {
    std::error_code error;
    const bool is_used = std::any_of(used.begin(), used.end(), [&](const path& one) {
      return std::filesystem::equivalent(one, folder / name, error);
    });
    if (is_used) continue;
    const bool is_set =
        name == "train" || std::find(kHeldOut.begin(), kHeldOut.end(), name) != kHeldOut.end();
    const char* const cause = name.starts_with('.') ? "hidden files or folders"
                              : !std::filesystem::is_directory(folder / name, error)
                                  ? "files beside the folders of sets"
                              : detail::is_made_by_programs(name) ? "folders of other programs"
                              : is_set                            ? "folders of other sets"
                                                                  : "folders beside those of sets";
    count_unused(unused, cause, name);
  }
  return unused;
}

Store open_samples(const path& at, const OpenOptions& options) {
  return find_format(at).open(at, options);
}

std::string format_of(const path& at) {
  return find_format(at).name;
}

bool has_parts(const path& at) {
  return find_format(at).has_parts;
}

Writer create_samples(const path& named, const CreateOptions& options) {
  const path at = named.has_filename() ? named : named.parent_path();  // "photos/" is "photos"
  const PackedWriterOptions packed{.threads = options.threads,
                                   .classes = options.classes,
                                   .class_names = options.class_names,
                                   .fields = options.fields};
  if (is_manifest(at)) return create_manifest(at, options.file_bytes, packed);
  if (ends_with(at, {".athp"})) return std::make_unique<PackedWriter>(at, packed);
  if (ends_with(at, {".npy"})) return create_npy(at);
  if (ends_with(at, {".npz"})) return create_npz(at);
  if (ends_with(at, {".h5", ".hdf5"})) return create_hdf5(at);
  if (ends_with(at, {".tar"})) return create_tar(at, options.class_names);
  if (ends_with(at, {".tfrecord", ".tfrecords"})) return create_tfrecord(at);
  if (ends_with(at, {".mdb", ".lmdb"})) return create_lmdb(at);
  if (ends_with(at, {".bin"})) return create_raw(at, options.classes);
  if (is_idx(at)) return create_idx(at);
  if (!at.has_extension()) return std::make_unique<ImageFolderWriter>(at, options.class_names);
  detail::fail<>(
      "data: {} must end in .athp (a packed file), .athp.json (several), .npy, .npz, .h5, .tar, .tfrecord, "
      ".lmdb, .bin, idx3-ubyte, or without a suffix (a folder of images), but ends in '{}'",
      at.string(), at.extension().string());
}

}  // namespace athanor
