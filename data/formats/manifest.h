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

/// Opens several packed files, listed in a manifest (NAME.athp.json), as one. The manifest is a JSON object
/// with "format": "athanor manifest", "version": 1 and "files", an array of objects with "name" (in the
/// manifest's folder), "samples", "bytes" and "content_id". Samples are in file order. Throws IoError if the
/// manifest is damaged, or a file is missing or differs.
std::unique_ptr<Dataset> open_manifest(const std::filesystem::path& path, const PackedOptions& options = {});

/// The paths of a manifest's files, in order. Does not open them. Throws IoError.
std::vector<std::filesystem::path> manifest_files(const std::filesystem::path& path);

/// Writes NAME-00000.athp, NAME-00001.athp, ... and, after all of them, NAME.athp.json. A file ends before
/// its samples would exceed `file_bytes`. The bytes depend only on samples and options. None of these names
/// may exist.
std::unique_ptr<SampleWriter> create_manifest(const std::filesystem::path& path, std::int64_t file_bytes,
                                              const PackedWriterOptions& options = {});

}  // namespace athanor
