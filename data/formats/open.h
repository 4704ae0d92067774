#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/digits.h"
#include "data/formats/import/cache.h"
#include "data/formats/set_folders.h"
#include "data/label_kind.h"
#include "data/sample_writer.h"

namespace athanor {

struct OpenOptions {
  Split split = Split::train;  ///< for folders with both
  bool check = true;           ///< packed files: checks each sample's CRC on fetch
  /// image=NAME,label=NAME: what the source calls them, in formats with names: data sets of HDF5, beginnings
  /// of keys of LMDB, features of TFRecord, arrays of npz, a key of .json members of tar (label), columns of
  /// tables, which may have several labels: image=file,label=age,height.
  std::string fields = {};
  /// What the columns of a table become: "label", or "labels" (data/formats/table.h). Unless it is classes, a
  /// folder with a table in it is that table.
  LabelKind labels = LabelKind::classes;
  std::vector<std::string> label_names = {};  ///< TableOptions::names
  /// A folder of images without folders is a data set, too, whose labels are all 0.
  bool unlabelled = false;
  /// Reads HDF5 and LMDB in this process, which damaged files can crash: for `athanor pack`.
  bool in_process = false;
  /// Samples of tar and TFRecord files that cannot be read are errors when they are read, not when the set is
  /// opened: those behind the point of damage are one such sample, and so is a shard that cannot be opened.
  /// For --bad-samples list and skip.
  bool keep_damaged = false;
  /// Called before HDF5 and LMDB are packed into the cache (data/formats/import/cache.h).
  ImportNotice on_import = {};
};

/// Opens the data set at `path`, with its reader's default options. Formats are detected as follows:
///   packed files, .npy, HDF5 and tar archives by their first bytes;
///   manifests (.athp.json), .npz, TFRecords (.tfrecord, .tfrecords, NAME-00000-of-00128), LMDB (.mdb, or a
///   folder with data.mdb) and IDX (idx3-ubyte, idx4-ubyte) by their names;
///   bare pixels (.bin) by the .json beside them;
///   tables of samples with several fields (.csv, .jsonl) by their names, and folders of them by images/ with
///   masks/ or targets/ beside it;
///   folders of MNIST, CIFAR-10 and CIFAR-100 by the files in them; folders of two sets by sets_in(); folders
///   of shards by the names of the files in them, tar, TFRecord and packed files; and any other folder with
///   folders in it as images, a folder for each class.
/// HDF5 and LMDB are imported, the others read from directly.
/// A path may name several, x-{000..147}.tar, "x-*.tar" or "a.tar,b": the shards of one set, in that order,
/// also of different formats. Those with names of classes are matched by name; else the number of classes is
/// the largest of theirs.
/// Throws IoError if `path` does not exist or has no known format, or shards are missing or do not fit
/// together; ArgumentError on `fields` of a format without names.
std::unique_ptr<Dataset> open_samples(const std::filesystem::path& path, const OpenOptions& options = {});

struct CreateOptions {
  int threads = 0;                                  ///< packed files: threads besides the caller's
  std::int64_t file_bytes = std::int64_t{1} << 30;  ///< manifests: bytes of samples per file
  /// Above 0: shards of at most so many bytes of samples, NAME-00000.tar, NAME-00001.tar, ... instead of
  /// NAME.tar. For tar and TFRecord files, and packed ones, which get a manifest.
  std::int64_t shard_bytes = 0;
  std::int64_t classes = 0;  ///< for formats that store it; 0: the largest label + 1, or the names'
  std::vector<std::string> class_names = {};  ///< for formats that store them
  std::vector<FieldSpec> fields = {};         ///< Dataset::fields(); empty: image and label
};

/// A writer for the format given by `path`'s suffix, one of written_formats(). Only packed files support more
/// than image and label; the others refuse such samples. Throws ArgumentError on any other suffix, IoError if
/// it cannot be written.
std::unique_ptr<SampleWriter> create_samples(const std::filesystem::path& path,
                                             const CreateOptions& options = {});
/// What open_samples() is to open after create_samples() of `path`: itself; of shards their manifest, or a
/// pattern that they match.
std::filesystem::path written_name(const std::filesystem::path& path, std::int64_t shard_bytes);
/// Whether create_samples() of `path` keeps CreateOptions::class_names; others have numbers alone.
bool keeps_class_names(const std::filesystem::path& path);
/// ".athp (a packed file), ..., or without a suffix (a folder of images)"
std::string written_formats();

/// The format open_samples() detects: "packed file", "CIFAR-10 folder", ... Throws as it does.
std::string format_of(const std::filesystem::path& path);
/// Whether it is imported rather than read from directly. Throws likewise.
bool is_imported(const std::filesystem::path& path);
/// Whether it holds a training and a test part, of which OpenOptions::split names one. Throws likewise.
bool has_parts(const std::filesystem::path& path);

}  // namespace athanor
