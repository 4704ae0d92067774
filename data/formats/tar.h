#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/formats/field_names.h"
#include "data/formats/table.h"
#include "data/sample_writer.h"

namespace athanor {

/// Maps a WebDataset shard: a tar archive (ustar, pax or GNU, including long names). A sample is the members
/// of one name up to its first dot: .jpg, .jpeg, .png or .webp, and .cls (a number) or .json (an object with
/// the number of key "label", or `names.label`); other members are ignored. Samples are in the order of their
/// first members; at least one. Opening builds the index, including labels; that of a large file is kept
/// (detail/kept_index.h). Throws IoError naming file and offset; compressed archives are refused. With
/// `keep_damaged`, the samples behind the point where the archive is damaged are one that cannot be read,
/// which is an error of fetch() only. Classes have names if create_tar() wrote them. Source: POSIX.1-2017,
/// pax; the WebDataset library's conventions.
std::unique_ptr<Dataset> open_tar(const std::filesystem::path& path, const FieldNames& names = {},
                                  bool keep_damaged = false);

/// The same of samples with several labels, or values: the keys of a .json are the columns of its row, as in
/// open_table(), and the text of a .cls is the column "label". No index is kept.
std::unique_ptr<Dataset> open_tar_labels(const std::filesystem::path& path, const TableOptions& options,
                                         bool keep_damaged = false);

/// Writes such a shard (ustar): 000000000.jpg and 000000000.cls, ... JPEG, PNG and WebP samples only. Names
/// of classes are comments of a global pax header, which other readers pass over.
std::unique_ptr<SampleWriter> create_tar(const std::filesystem::path& path,
                                         const std::vector<std::string>& class_names = {});

}  // namespace athanor
