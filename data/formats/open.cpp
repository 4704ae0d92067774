#include "data/formats/open.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include <fmt/ranges.h>

#include "data/formats/cifar.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/shard_folder.h"
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
#include "data/formats/shard_writer.h"
#include "data/formats/shards.h"
#include "data/formats/table.h"
#include "data/formats/tar.h"
#include "data/formats/tfrecord.h"
#include "tensor/base/cores.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/regular_file.h"

namespace athanor {
namespace {

using detail::ends_with, detail::is_folder, detail::is_manifest, detail::is_shard_folder, detail::is_tfrecord;
using std::filesystem::path;
using Store = std::unique_ptr<Dataset>;
using Writer = std::unique_ptr<SampleWriter>;

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

bool is_idx(const path& at) {
  const std::string name = at.filename().string();
  return name.find("idx3-ubyte") != std::string::npos || name.find("idx4-ubyte") != std::string::npos;
}

/// A file of bare pixels is recognised by the files next to it.
bool is_raw(const path& at) {
  std::error_code error;
  return at.extension() == ".bin" && std::filesystem::exists(path(at).replace_extension(".json"), error);
}

Store open_shard_folder(const path& folder, const OpenOptions& options, std::vector<Unused> beside);

Store open_part(const path& folder, const OpenOptions& options) {
  return open_set(folder, options.split, [&](const path& set, const std::vector<Unused>& beside) -> Store {
    if (is_shard_folder(set)) return open_shard_folder(set, options, beside);
    return std::make_unique<ImageFolder>(set, beside);
  });
}

bool are_shard_sets(const path& at) {
  const std::optional<SetFolders> sets = sets_in(at);
  return sets && (is_shard_folder(sets->train) || is_shard_folder(sets->held_out));
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
  bool in_shards = false;    ///< CreateOptions::shard_bytes
  bool keeps_names = false;  ///< CreateOptions::class_names
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
     },
     .in_shards = true,
     .keeps_names = true},
    {.name = "manifest of packed files",
     .matches = is_manifest,
     .open = [](const path& at,
                const OpenOptions& options) { return open_manifest(at, {.check = options.check}); },
     .written_as = ".athp.json (several)",
     .is_written = is_manifest,
     .create =
         [](const path& at, const CreateOptions& options) {
           const std::int64_t bytes = options.shard_bytes > 0 ? options.shard_bytes : options.file_bytes;
           return create_manifest(at, bytes, packed_options(options));
         },
     .in_shards = true,
     .keeps_names = true},
    {.name = "NumPy array",
     .matches = [](const path& at) { return has(at, "\x93NUMPY"); },
     .open = [](const path& at, const OpenOptions& options) { return open_npy(at, options.labels); },
     .written_as = ".npy",
     .is_written = [](const path& at) { return ends_with(at, {".npy"}); },
     .create = [](const path& at, const CreateOptions&) { return create_npy(at); }},
    {.name = "NumPy archive",
     .matches = [](const path& at) { return ends_with(at, {".npz"}) && has(at, "PK"); },
     .open =
         [](const path& at, const OpenOptions& options) {
           return open_npz(at, field_names(options.fields), options.labels);
         },
     .has_names = true,
     .written_as = ".npz",
     .is_written = [](const path& at) { return ends_with(at, {".npz"}); },
     .create = [](const path& at, const CreateOptions&) { return create_npz(at); }},
    {.name = "HDF5 file",
     .matches = [](const path& at) { return has(at, "\x89HDF\r\n\x1a\n"); },
     .open =
         [](const path& at, const OpenOptions& options) {
           return open_hdf5(at, field_names(options.fields), options.labels);
         },
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
     .open =
         [](const path& at, const OpenOptions& options) {
           const FieldNames names = field_names(options.fields);
           if (options.labels == LabelKind::classes) return open_tar(at, names, options.keep_damaged);
           return open_tar_labels(at, {options.labels, names, options.label_names}, options.keep_damaged);
         },
     .has_names = true,
     .written_as = ".tar",
     .is_written = [](const path& at) { return ends_with(at, {".tar"}); },
     .create = [](const path& at,
                  const CreateOptions& options) { return create_tar(at, options.class_names); },
     .in_shards = true,
     .keeps_names = true},
    {.name = "table of samples",
     .matches =
         [](const path& at) {
           return ends_with(at, {".csv", ".jsonl"});
         },
     .open = [](const path& at, const OpenOptions& options) -> Store {
       if (options.labels == LabelKind::classes && options.fields.empty()) return open_table(at);
       return open_table(at, {options.labels, field_names(options.fields), options.label_names});
     },
     .has_names = true},
    {.name = "TFRecord file",
     .matches = [](const path& at) { return is_tfrecord(at); },
     .open =
         [](const path& at, const OpenOptions& options) {
           return open_tfrecord(at, field_names(options.fields), options.keep_damaged);
         },
     .has_names = true,
     .written_as = ".tfrecord",
     .is_written =
         [](const path& at) {
           return ends_with(at, {".tfrecord", ".tfrecords"});
         },
     .create = [](const path& at, const CreateOptions&) { return create_tfrecord(at); },
     .in_shards = true},
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
    {.name = "folders of shards of a training and a held-out set",
     .matches = are_shard_sets,
     .open = open_part,
     .has_parts = true,
     .has_names = true},
    {.name = "image folders of a training and a held-out set",
     .matches = [](const path& at) { return sets_in(at).has_value(); },
     .open = open_part,
     .has_parts = true},
    {.name = "folder of shards",
     .matches = is_shard_folder,
     .open = [](const path& at, const OpenOptions& options) { return open_shard_folder(at, options, {}); },
     .has_names = true},
    // Last, as other formats may also be folders.
    {.name = "image folder",
     .matches = is_folder,
     .open = [](const path& at, const OpenOptions& options) -> Store {
       if (options.unlabelled && !has_folders(at)) return ImageFolder::unlabelled(at);
       return open_classes(at);
     },
     .written_as = "or without a suffix (a folder of images)",
     .is_written = [](const path& at) { return !at.has_extension(); },
     .create = [](const path& at, const CreateOptions& options) -> Writer {
       return std::make_unique<ImageFolderWriter>(at, options.class_names);
     },
     .keeps_names = true},
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

/// The only table in a folder, or the folder, if it has none.
path the_table_in(const path& folder, const OpenOptions& options) {
  const std::vector<path> tables = tables_in(folder);
  if (tables.size() < 2) return tables.empty() ? folder : tables[0];
  std::vector<std::string> names;
  for (const path& table : tables) names.push_back(printable(table.filename().string()));
  detail::fail<IoError>(
      "data: {} must have one table of labels with --task {}, but has {}, {}: name the table instead of its "
      "folder, as in --train {} --val {}",
      folder.string(), name_of(options.labels), names.size(), fmt::join(names, ", "), tables[0].string(),
      tables[1].string());
}

Store open_one(const path& given, const OpenOptions& options) {
  const path at =
      options.labels != LabelKind::classes && is_folder(given) ? the_table_in(given, options) : given;
  const Format& format = find_format(at);
  ATH_CHECK(options.fields.empty() || format.has_names,
            "--fields: {} must be one of: {}; but is of the format {}", at.string(),
            format_names([](const Format& one) { return one.has_names; }), format.name);
  if (!format.imports || options.in_process) return format.open(at, options);
  return open_imported(at, format.imports(at, field_names(options.fields)), options.fields, options.labels,
                       options.on_import);
}

Store open_several(const std::vector<path>& shards, OpenOptions options, std::vector<Unused> beside = {}) {
  // Opening a shard may mean to wait for a disk, or to read all of it.
  constexpr int kReaders = 8;
  const auto imported = [](const path& at) { return find_format(at).imports != nullptr; };
  const bool one_by_one = options.in_process && std::ranges::any_of(shards, imported);  // HDF5 wants it
  std::mutex mutex;
  if (options.on_import) {
    options.on_import = [&mutex, say = std::move(options.on_import)](const std::string& line) {
      const std::lock_guard lock(mutex);
      say(line);
    };
  }
  const auto open = [&](const path& at, const std::vector<std::string>& label_names) {
    if (label_names.empty()) return open_one(at, options);
    OpenOptions named = options;
    named.label_names = label_names;
    return open_one(at, named);
  };
  return open_shards(shards, open,
                     {.threads = one_by_one ? 1 : std::max(kReaders, usable_cpus()),
                      .keep_damaged = options.keep_damaged,
                      .beside = std::move(beside)});
}

Store open_shard_folder(const path& folder, const OpenOptions& options, std::vector<Unused> beside) {
  const std::vector<path> shards = detail::shards_in(folder, beside);
  // Joined, a training and a held-out set would be trained on alike.
  for (const path& shard : shards) {
    const std::string one = shards[0].filename().string(), other = shard.filename().string();
    if (set_in_name(one) != set_in_name(other))
      detail::fail<IoError>(
          "data: {} must hold the shards of one set, but holds those of several, as {} and {} say: name each "
          "by a pattern, such as '{}'",
          folder.string(), printable(one), printable(other),
          (folder / (one.substr(0, one.find_first_of("0123456789")) + "*")).string());
  }
  return open_several(shards, options, std::move(beside));
}

}  // namespace

Store open_samples(const path& at, const OpenOptions& options) {
  const std::vector<path> shards = shards_of(at);
  return shards.size() == 1 ? open_one(shards[0], options) : open_several(shards, options);
}

bool is_imported(const path& at) {
  return std::ranges::any_of(shards_of(at),
                             [](const path& one) { return find_format(one).imports != nullptr; });
}

std::string format_of(const path& at) {
  const std::vector<path> shards = shards_of(at);
  if (shards.size() == 1) return find_format(shards[0]).name;
  std::string all = fmt::format("{} shards", shards.size());
  std::set<const Format*> seen;
  for (const path& one : shards) {
    const Format& format = find_format(one);
    if (seen.insert(&format).second) all += (seen.size() == 1 ? ": " : ", ") + std::string(format.name);
  }
  return all;
}

bool has_parts(const path& at) {
  return std::ranges::any_of(shards_of(at), [](const path& one) { return find_format(one).has_parts; });
}

path written_name(const path& at, std::int64_t shard_bytes) {
  if (shard_bytes <= 0 || is_manifest(at)) return at;
  if (ends_with(at, {".athp"})) return path(at).replace_extension(".athp.json");
  path shards = path(at).replace_extension();
  return shards += "-*" + at.extension().string();
}

Writer create_samples(const path& named, const CreateOptions& options) {
  const path at = named.has_filename() ? named : named.parent_path();  // "photos/" is "photos"
  for (const Format& format : kFormats) {
    if (!format.create || !format.is_written(at)) continue;
    if (options.shard_bytes <= 0 || is_manifest(at)) return format.create(at, options);
    ATH_CHECK(format.in_shards, "data: only {} are written in shards, but {} is none of these",
              format_names([](const Format& one) { return one.in_shards; }), at.string());
    if (ends_with(at, {".athp"})) return create_samples(written_name(at, options.shard_bytes), options);
    return std::make_unique<ShardWriter>(ShardWriter::Options{
        .stem = path(at).replace_extension(),
        .suffix = at.extension().string(),
        .shard_bytes = options.shard_bytes,
        .create = [&format, options](const path& shard) { return format.create(shard, options); }});
  }
  detail::fail<>("data: {} must end in {}, but ends in '{}'", at.string(), written_formats(),
                 at.extension().string());
}

bool keeps_class_names(const path& named) {
  const path at = named.has_filename() ? named : named.parent_path();
  return std::ranges::any_of(kFormats, [&](const Format& format) {
    return format.keeps_names && format.is_written && format.is_written(at);
  });
}

std::string written_formats() {
  std::string all;
  for (const Format& format : kFormats) {
    if (format.written_as) all += (all.empty() ? "" : ", ") + std::string(format.written_as);
  }
  return all;
}

}  // namespace athanor
