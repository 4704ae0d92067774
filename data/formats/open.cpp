#include "data/formats/open.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <span>
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

/// Names of folders of a set, in any case. Of several in one folder, the first counts.
constexpr std::string_view kTrain[]{"train", "training"};
constexpr std::string_view kHeldOut[]{"val",  "valid",      "validation", "dev",
                                      "eval", "evaluation", "test",       "testing"};

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

/// Whether a folder has the name of a set.
bool is_named_as_set(const std::string& folder) {
  const std::string name = detail::lower_case(folder);
  return std::ranges::find(kTrain, name) != std::end(kTrain) ||
         std::ranges::find(kHeldOut, name) != std::end(kHeldOut);
}

/// With the numbers that the classes have in the training set.
Store open_held_out(const path& at, const SetFolders& sets) {
  auto images = std::make_unique<ImageFolder>(sets.held_out, beside_sets(at, {sets.held_out}));
  const std::vector<std::string> names = ImageFolder(sets.train).class_names();
  if (images->class_names() == names) return images;
  try {
    return std::make_unique<Relabelled>(std::move(images), names);
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("image folder: {}: {}", sets.held_out.string(), error.what());
  }
}

/// A set with a folder for each class is no class, even if its partner is missing, or has no such folders.
void refuse_lonely_set(const path& at) {
  path set, flat;
  for (const std::string& name : detail::names_in(at, "image folder"))
    if (is_named_as_set(name) && is_folder(at / name)) (has_folders(at / name) ? set : flat) = at / name;
  if (set.empty()) return;
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
    {"tar archive",
     [](const path& at) {  // compressed ones, too: their error names the cure
       return ends_with(at, {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"}) ||
              has(at, "ustar", 257);
     },
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
    {"image folders of a training and a held-out set", [](const path& at) { return sets_in(at).has_value(); },
     [](const path& at, const OpenOptions& options) -> Store {
       const SetFolders sets = *sets_in(at);
       if (options.split == Split::test) return open_held_out(at, sets);
       return std::make_unique<ImageFolder>(sets.train, beside_sets(at, {sets.train}));
     },
     true},
    // Last, as other formats may also be folders.
    {"image folder", is_folder,
     [](const path& at, const OpenOptions&) -> Store {
       refuse_lonely_set(at);
       return std::make_unique<ImageFolder>(at);
     }},
};

const Format& find_format(const path& at) {
  std::error_code error;
  if (!std::filesystem::exists(at, error)) {
    if (error) detail::fail<IoError>("data: {} cannot be read: {}", at.string(), error.message());
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

std::optional<SetFolders> sets_in(const path& folder) {
  if (!is_folder(folder)) return std::nullopt;
  const std::vector<std::string> all = detail::names_in(folder, "image folder");
  const auto first_of = [&](std::span<const std::string_view> names) {
    for (const std::string_view name : names)
      for (const std::string& one : all)
        if (detail::lower_case(one) == name && has_folders(folder / one)) return folder / one;
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
