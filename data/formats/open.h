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
#include "data/sample_writer.h"

namespace athanor {

struct OpenOptions {
  Split split = Split::train;  ///< for folders with both
  bool check = true;           ///< packed files: checks each sample's CRC on fetch
  /// image=NAME,label=NAME: what the source calls them, in formats with names: data sets of HDF5, beginnings
  /// of keys of LMDB, features of TFRecord, arrays of npz, a key of .json members of tar (label).
  std::string fields = {};
  /// Reads HDF5 and LMDB in this process, which damaged files can crash: for `athanor pack`.
  bool in_process = false;
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
///   folders of MNIST, CIFAR-10 and CIFAR-100 by the files in them; folders of two sets by sets_in(); and any
///   other folder with folders in it as images, a folder for each class.
/// HDF5 and LMDB are imported, the others read from directly.
/// Throws IoError if `path` does not exist or has no known format, ArgumentError on `fields` of a format
/// without names.
std::unique_ptr<Dataset> open_samples(const std::filesystem::path& path, const OpenOptions& options = {});

struct CreateOptions {
  int threads = 0;                                  ///< packed files: threads besides the caller's
  std::int64_t file_bytes = std::int64_t{1} << 30;  ///< manifests: bytes of samples per file
  std::int64_t classes = 0;  ///< for formats that store it; 0: the largest label + 1, or the names'
  std::vector<std::string> class_names = {};  ///< for formats that store them
  std::vector<FieldSpec> fields = {};         ///< Dataset::fields(); empty: image and label
};

/// A writer for the format given by `path`'s suffix, one of written_formats(). Only packed files support more
/// than image and label; the others refuse such samples. Throws ArgumentError on any other suffix, IoError if
/// it cannot be written.
std::unique_ptr<SampleWriter> create_samples(const std::filesystem::path& path,
                                             const CreateOptions& options = {});
/// ".athp (a packed file), ..., or without a suffix (a folder of images)"
std::string written_formats();

/// The format open_samples() detects: "packed file", "CIFAR-10 folder", ... Throws as it does.
std::string format_of(const std::filesystem::path& path);
/// Whether it is imported rather than read from directly. Throws likewise.
bool is_imported(const std::filesystem::path& path);
/// Whether it holds a training and a test part, of which OpenOptions::split names one. Throws likewise.
bool has_parts(const std::filesystem::path& path);

}  // namespace athanor
