#include "data/formats/open.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string_view>

#include "data/formats/cifar.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/field_names.h"
#include "data/formats/idx.h"
#include "data/formats/image_folder.h"
#include "data/formats/import/hdf5.h"
#include "data/formats/import/lmdb.h"
#include "data/formats/manifest.h"
#include "data/formats/mnist.h"
#include "data/formats/npy.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "data/formats/raw.h"
#include "data/formats/table.h"
#include "data/formats/tar.h"
#include "data/formats/tfrecord.h"
#include "tensor/base/error.h"
#include "tensor/io/regular_file.h"

namespace athanor {
namespace {

using std::filesystem::path;
using Store = std::unique_ptr<Dataset>;
using Writer = std::unique_ptr<SampleWriter>;

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

bool is_tfrecord(const path& at) {
  return ends_with(at, {".tfrecord", ".tfrecords"});
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

/// A format: how it is recognised and opened and, if it is written, which names it then has and how it is
/// created. The first row that recognises a path opens it.
struct Format {
  const char* name;
  bool (*matches)(const path& at);
  Store (*open)(const path& at, const OpenOptions& options);
  bool has_parts = false;  ///< training and test
  bool has_names = false;  ///< OpenOptions::fields
  /// Of a format that is imported: all files that opening reads.
  std::vector<path> (*imports)(const path& at, const FieldNames& names) = nullptr;
  const char* written_as = nullptr;  ///< suffixes and what they mean, for messages; null: only read
  bool (*is_written)(const path& at) = nullptr;
  Writer (*create)(const path& at, const CreateOptions& options) = nullptr;
};

PackedWriterOptions packed_options(const CreateOptions& options) {
  return {.threads = options.threads,
          .classes = options.classes,
          .class_names = options.class_names,
          .fields = options.fields};
}

constexpr Format kFormats[] = {
    {.name = "packed file",
     .matches = PackedStore::recognises,
     .open = [](const path& at, const OpenOptions& options) -> Store {
       return std::make_unique<PackedStore>(at, PackedOptions{.check = options.check});
     },
     .written_as = ".athp (a packed file)",
     .is_written = [](const path& at) { return ends_with(at, {".athp"}); },
     .create = [](const path& at, const CreateOptions& options) -> Writer {
       return std::make_unique<PackedWriter>(at, packed_options(options));
     }},
    {.name = "manifest of packed files",
     .matches = is_manifest,
     .open = [](const path& at,
                const OpenOptions& options) { return open_manifest(at, {.check = options.check}); },
     .written_as = ".athp.json (several)",
     .is_written = is_manifest,
     .create =
         [](const path& at, const CreateOptions& options) {
           return create_manifest(at, options.file_bytes, packed_options(options));
         }},
    {.name = "NumPy array",
     .matches = [](const path& at) { return has(at, "\x93NUMPY"); },
     .open = [](const path& at, const OpenOptions&) { return open_npy(at); },
     .written_as = ".npy",
     .is_written = [](const path& at) { return ends_with(at, {".npy"}); },
     .create = [](const path& at, const CreateOptions&) { return create_npy(at); }},
    {.name = "NumPy archive",
     .matches = [](const path& at) { return ends_with(at, {".npz"}) && has(at, "PK"); },
     .open = [](const path& at,
                const OpenOptions& options) { return open_npz(at, field_names(options.fields)); },
     .has_names = true,
     .written_as = ".npz",
     .is_written = [](const path& at) { return ends_with(at, {".npz"}); },
     .create = [](const path& at, const CreateOptions&) { return create_npz(at); }},
    {.name = "HDF5 file",
     .matches = [](const path& at) { return has(at, "\x89HDF\r\n\x1a\n"); },
     .open = [](const path& at,
                const OpenOptions& options) { return open_hdf5(at, field_names(options.fields)); },
     .has_names = true,
     .imports = hdf5_files,
     .written_as = ".h5",
     .is_written =
         [](const path& at) {
           return ends_with(at, {".h5", ".hdf5"});
         },
     .create = [](const path& at, const CreateOptions&) { return create_hdf5(at); }},
    {.name = "tar archive",
     .matches =
         [](const path& at) {  // compressed ones, too: their error names the cure
           return ends_with(at, {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst"}) ||
                  has(at, "ustar", 257);
         },
     .open = [](const path& at,
                const OpenOptions& options) { return open_tar(at, field_names(options.fields)); },
     .has_names = true,
     .written_as = ".tar",
     .is_written = [](const path& at) { return ends_with(at, {".tar"}); },
     .create = [](const path& at,
                  const CreateOptions& options) { return create_tar(at, options.class_names); }},
    {.name = "table of samples",
     .matches =
         [](const path& at) {
           return ends_with(at, {".csv", ".jsonl"});
         },
     .open = [](const path& at, const OpenOptions&) { return open_table(at); }},
    {.name = "TFRecord file",
     .matches = [](const path& at) { return is_tfrecord(at) || is_shard(at); },
     .open = [](const path& at,
                const OpenOptions& options) { return open_tfrecord(at, field_names(options.fields)); },
     .has_names = true,
     .written_as = ".tfrecord",
     .is_written = is_tfrecord,
     .create = [](const path& at, const CreateOptions&) { return create_tfrecord(at); }},
    {.name = "LMDB environment",
     .matches = [](const path& at) { return ends_with(at, {".mdb"}) || holds(at, {"data.mdb"}); },
     .open = [](const path& at,
                const OpenOptions& options) { return open_lmdb(at, field_names(options.fields)); },
     .has_names = true,
     .imports = lmdb_files},
    {.name = "IDX file",
     .matches = is_idx,
     .open = [](const path& at, const OpenOptions&) { return open_idx(at); },
     .written_as = "idx3-ubyte",
     .is_written = is_idx,
     .create = [](const path& at, const CreateOptions&) { return create_idx(at); }},
    {.name = "raw pixel file",
     .matches = is_raw,
     .open = [](const path& at, const OpenOptions&) { return open_raw(at); },
     .written_as = ".bin",
     .is_written = [](const path& at) { return ends_with(at, {".bin"}); },
     .create = [](const path& at, const CreateOptions& options) { return create_raw(at, options.classes); }},
    {.name = "MNIST folder",
     .matches =
         [](const path& at) {
           return holds(at, {"train-images-idx3-ubyte", "t10k-images-idx3-ubyte"});
         },
     .open = [](const path& at, const OpenOptions& options) { return open_mnist(at, options.split); },
     .has_parts = true},
    {.name = "CIFAR-10 folder",
     .matches =
         [](const path& at) {
           return holds(at, {"data_batch_1.bin", "test_batch.bin"});
         },
     .open = [](const path& at, const OpenOptions& options) { return open_cifar(at, 10, options.split); },
     .has_parts = true},
    {.name = "CIFAR-100 folder",
     .matches =
         [](const path& at) {
           return holds(at, {"train.bin", "test.bin"});
         },
     .open = [](const path& at, const OpenOptions& options) { return open_cifar(at, 100, options.split); },
     .has_parts = true},
    {.name = "folders of images and masks or targets",
     .matches = is_folder_pairs,
     .open = [](const path& at, const OpenOptions&) { return open_folder_pairs(at); }},
    {.name = "image folders of a training and a held-out set",
     .matches = [](const path& at) { return sets_in(at).has_value(); },
     .open = [](const path& at, const OpenOptions& options) { return open_set(at, options.split); },
     .has_parts = true},
    // Last, as other formats may also be folders.
    {.name = "image folder",
     .matches = is_folder,
     .open = [](const path& at, const OpenOptions&) -> Store { return open_classes(at); },
     .written_as = "or without a suffix (a folder of images)",
     .is_written = [](const path& at) { return !at.has_extension(); },
     .create = [](const path& at, const CreateOptions& options) -> Writer {
       return std::make_unique<ImageFolderWriter>(at, options.class_names);
     }},
};

/// The names of all formats, or of some.
std::string format_names(bool (*wanted)(const Format&)) {
  std::string all;
  for (const Format& format : kFormats) {
    if (wanted(format)) all += (all.empty() ? "" : ", ") + std::string(format.name);
  }
  return all;
}

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
  const std::string kind = std::filesystem::is_directory(at, error) ? "" : RegularFile(at).kind();
  detail::fail<IoError>("data: {} must be one of: {}; but is {}", at.string(),
                        format_names([](const Format&) { return true; }),
                        kind.empty() ? "none of these" : kind);
}

}  // namespace

Store open_samples(const path& at, const OpenOptions& options) {
  const Format& format = find_format(at);
  ATH_CHECK(options.fields.empty() || format.has_names,
            "--fields: {} must be one of: {}; but is of the format {}", at.string(),
            format_names([](const Format& one) { return one.has_names; }), format.name);
  if (!format.imports || options.in_process) return format.open(at, options);
  return open_imported(at, format.imports(at, field_names(options.fields)), options.fields,
                       options.on_import);
}

bool is_imported(const path& at) {
  return find_format(at).imports != nullptr;
}

std::string format_of(const path& at) {
  return find_format(at).name;
}

bool has_parts(const path& at) {
  return find_format(at).has_parts;
}

Writer create_samples(const path& named, const CreateOptions& options) {
  const path at = named.has_filename() ? named : named.parent_path();  // "photos/" is "photos"
  for (const Format& format : kFormats) {
    if (format.create && format.is_written(at)) return format.create(at, options);
  }
  detail::fail<>("data: {} must end in {}, but ends in '{}'", at.string(), written_formats(),
                 at.extension().string());
}

std::string written_formats() {
  std::string all;
  for (const Format& format : kFormats) {
    if (format.written_as) all += (all.empty() ? "" : ", ") + std::string(format.written_as);
  }
  return all;
}

}  // namespace athanor
