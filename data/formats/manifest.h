#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/formats/packed.h"
#include "data/formats/packed_writer.h"
#include "data/sample_writer.h"

namespace athanor {

/// Opens several packed files as one, which a manifest (NAME.athp.json) lists: a JSON object with "format":
/// "athanor manifest", "version": 1 and "files", an array of objects with "name" (beside the manifest),
/// "samples", "bytes" and "content_id". Samples go file by file, in that order. Throws IoError where the
/// manifest is damaged, or a file missing or another one than it names.
std::unique_ptr<Dataset> open_manifest(const std::filesystem::path& path, const PackedOptions& options = {});

/// The files a manifest lists, in order, with its folder before them. Does not look at them. Throws IoError.
std::vector<std::filesystem::path> manifest_files(const std::filesystem::path& path);

/// Writes NAME-00000.athp, NAME-00001.athp, ... and, when all of them are whole, NAME.athp.json. A file is
/// ended when another sample would bring its samples over `file_bytes`. Their bytes depend on what is added,
/// and on the options, alone. None of these names may exist.
std::unique_ptr<SampleWriter> create_manifest(const std::filesystem::path& path, std::int64_t file_bytes,
                                              const PackedWriterOptions& options = {});

}  // namespace athanor
