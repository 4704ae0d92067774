#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/digits.h"
#include "data/formats/import/cache.h"
#include "data/sample_writer.h"

namespace athanor {

struct OpenOptions {
  Split split = Split::train;  ///< of folders that hold both
  bool check = true;           ///< packed files: compares each sample with its CRC when it is fetched
  /// Told of files that can only be read from front to back (HDF5), before they are packed into the cache.
  ImportNotice on_import = {};
};

/// Opens whatever lies at `path`, with the options its reader has for itself. What it is, it says itself:
///   packed files, .npy, HDF5 and tar archives by their first bytes;
///   manifests (.athp.json), .npz, TFRecords (.tfrecord, .tfrecords, NAME-00000-of-00128), LMDB (.mdb, or a
///   folder with data.mdb) and IDX (idx3-ubyte, idx4-ubyte) by their names;
///   bare pixels (.bin) by the .json beside them;
///   tables of samples with several fields (.csv, .jsonl) by their names, and folders of them by images/ with
///   masks/ or targets/ beside it;
///   folders of MNIST, CIFAR-10 and CIFAR-100 by the files in them, and any other folder with folders in it
///   as images, a folder for each class.
/// Throws IoError where there is nothing, or nothing known.
std::unique_ptr<Dataset> open_samples(const std::filesystem::path& path, const OpenOptions& options = {});

struct CreateOptions {
  int threads = 0;                                  ///< packed files: threads beside the caller's
  std::int64_t file_bytes = std::int64_t{1} << 30;  ///< manifests: bytes of samples in each file
  std::int64_t classes = 0;  ///< for formats that state them; 0: the largest label + 1, or the names'
  std::vector<std::string> class_names = {};  ///< for formats that keep them
  std::vector<FieldSpec> fields = {};         ///< Dataset::fields(); none: image and label
};

/// A writer of the format that `path` ends like: .athp (a packed file), .athp.json (a manifest and its
/// files), .npy, .npz, .h5, .hdf5, .tar, .tfrecord, .tfrecords, .mdb, .lmdb (a folder), .bin, idx3-ubyte, or
/// no suffix (ImageFolderWriter). Of these packed files hold more than image and label; the others refuse
/// such samples. Throws ArgumentError on any other end, IoError where it cannot be written.
std::unique_ptr<SampleWriter> create_samples(const std::filesystem::path& path,
                                             const CreateOptions& options = {});

/// "packed file", "CIFAR-10 folder", ...: what open_samples() takes `path` for. Throws as it does.
std::string format_of(const std::filesystem::path& path);

}  // namespace athanor
