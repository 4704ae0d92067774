#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "data/dataset.h"
#include "data/formats/import/cache.h"
#include "data/sample_writer.h"

namespace athanor {

struct Hdf5Options {
  /// The data sets' names, including groups. Empty: the first pair found of images and labels, x and y,
  /// x_train and y_train, x_test and y_test, data and label, X and Y.
  std::string images = {}, labels = {};
  /// 0: the largest label + 1.
  std::int64_t classes = 0;
  /// Maximum seconds to read one row of chunks, > 0. After that the read counts as hanging and is ended.
  double patience_s = 60;
};

/// Reads images [N, H, W, C] or [N, H, W] u8 and labels [N] or [N, 1] of any integer type with libhdf5, N >=
/// 1, in sequence. External and virtual data sets are refused. libhdf5 can crash on damaged files, so it runs
/// in a child process that lives as long as the sequence and keeps a copy of memory that this process changes
/// meanwhile. Throws IoError, also if the child was ended, did not answer in time or could not be started,
/// and in a build without libhdf5. Source: The HDF Group, "HDF5 File Format Specification".
std::unique_ptr<SampleSequence> read_hdf5(const std::filesystem::path& path, const Hdf5Options& options = {});

/// The same samples in any order: packed once into the cache (data/formats/import/cache.h).
std::unique_ptr<Dataset> open_hdf5(const std::filesystem::path& path, const Hdf5Options& options = {},
                                   const ImportNotice& on_import = {});

/// Writes "images" [N, H, W, C] u8 and "labels" [N] i64: raw images of one size, in chunks of about 1 MiB
/// with Fletcher-32 checksums and, for `deflate` in [1, 9], compression. Also uses a child process.
std::unique_ptr<SampleWriter> create_hdf5(const std::filesystem::path& path, int deflate = 0);

}  // namespace athanor
