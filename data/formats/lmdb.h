#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "data/sample_writer.h"

namespace athanor {

struct LmdbOptions {
  /// 0: the largest label + 1.
  std::int64_t classes = 0;
};

/// Maps an LMDB environment: a folder with data.mdb, or such a file. Samples are the values of the main
/// database in key order, at least one. A value is 32 bytes, little-endian, followed by the image's bytes:
///
///     0  "ATH1"        4  codec: u8, 0 raw, 1 jpeg, 2 png     5  zero, 3 bytes
///     8  label: i64   16  height, width, channels: u32 each, of raw images, else 0
///    28  CRC-32C (u32) of bytes 0 to 27 and of the image's, in that order
///
/// Our own code reads the pages and checks every number, because liblmdb follows page numbers of a damaged
/// file beyond its end. No other process may write to the environment meanwhile. Opening reads the whole tree
/// and the header of each value; fetch() checks the CRC. Throws IoError naming file and offset.
/// Source: Chu 2011, "MDB: A Memory-Mapped Database"; liblmdb 0.9, data format 1, 64 bits.
std::unique_ptr<Dataset> open_lmdb(const std::filesystem::path& path, const LmdbOptions& options = {});

/// Writes such an environment with liblmdb: the file `path` if its name ends in .mdb, else data.mdb in the
/// folder `path`. Keys are 0, 1, ... as big-endian u64. Throws IoError in a build without liblmdb.
std::unique_ptr<SampleWriter> create_lmdb(const std::filesystem::path& path);

}  // namespace athanor
