#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/digits.h"
#include "data/formats/import/cache.h"
#include "data/sample_writer.h"

namespace athanor {

struct OpenOptions {
  Split split = Split::train;  ///< for folders with both
  bool check = true;           ///< packed files: checks each sample's CRC on fetch
  /// Called for sequential-only files (HDF5) before they are packed into the cache.
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
/// Throws IoError if `path` does not exist or has no known format.
std::unique_ptr<Dataset> open_samples(const std::filesystem::path& path, const OpenOptions& options = {});

/// The folders of two sets of images, each with a folder for each class.
struct SetFolders {
  std::filesystem::path train, held_out;
};
/// Those in a folder that holds both: train or training, and val, valid, validation, dev, eval, evaluation,
/// test or testing, in any case; of several the first of these. nullopt for any other folder.
std::optional<SetFolders> sets_in(const std::filesystem::path& folder);

/// What such a folder holds besides `used`, folders in it: other sets, files, folders that are no set.
std::vector<Unused> beside_sets(const std::filesystem::path& folder,
                                const std::vector<std::filesystem::path>& used);

struct CreateOptions {
  int threads = 0;                                  ///< packed files: threads besides the caller's
  std::int64_t file_bytes = std::int64_t{1} << 30;  ///< manifests: bytes of samples per file
  std::int64_t classes = 0;  ///< for formats that store it; 0: the largest label + 1, or the names'
  std::vector<std::string> class_names = {};  ///< for formats that store them
  std::vector<FieldSpec> fields = {};         ///< Dataset::fields(); empty: image and label
};

/// A writer for the format given by `path`'s suffix: .athp (a packed file), .athp.json (a manifest and its
/// files), .npy, .npz, .h5, .hdf5, .tar, .tfrecord, .tfrecords, .mdb, .lmdb (a folder), .bin, idx3-ubyte, or
/// no suffix (ImageFolderWriter). Only packed files support more than image and label; the others refuse such
/// samples. Throws ArgumentError on any other suffix, IoError if it cannot be written.
std::unique_ptr<SampleWriter> create_samples(const std::filesystem::path& path,
                                             const CreateOptions& options = {});

/// The format open_samples() detects: "packed file", "CIFAR-10 folder", ... Throws as it does.
std::string format_of(const std::filesystem::path& path);
/// Whether it holds a training and a test part, of which OpenOptions::split names one. Throws likewise.
bool has_parts(const std::filesystem::path& path);

}  // namespace athanor
