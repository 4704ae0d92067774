#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace athanor {

/// Samples that a table lists, in UTF-8: a CSV file (.csv, RFC 4180, names in the first row) or JSON lines
/// (.jsonl, an object a line). Each column is a field. Names of files are below the table's folder, or
/// absolute.
///
///     image,mask,label,centre.0,centre.1
///     photos/a.jpg,masks/a.png,cat,12.5,8
///
///     {"image": "a.jpg", "box:boxes": [[4, 4, 20, 30]], "label": 2}
///     {"image": "b.jpg", "box:boxes": [[0, 9, 7, 12]], "label": 0}
///
/// "image" is a file and must be there. "label" is a whole number, or a class by its name, numbered in byte
/// order; those of a CSV file are names as soon as one is no number. Of the others, names of image files are
/// masks where the column is "mask" or ends in "_mask", else targets; numbers, which must be finite, are
/// values, i64 where all are whole, else f32; CSV columns NAME.0, NAME.1, ... are one field. "NAME:KIND" says
/// another FieldKind. All rows have the same columns, and as many numbers. Throws IoError naming line and
/// field where they do not.
std::unique_ptr<Dataset> open_table(const std::filesystem::path& path);

/// A folder with images/ and, for each further field, a folder of files of the same names (whatever the
/// suffix): masks/, targets/ or another with images in it. Without an "s" at the end, these are the names of
/// the fields: masks where it is "mask" or ends in "_mask", else targets. Hidden files and folders are passed
/// over. Throws IoError naming a file that has no partner, or two of one name.
std::unique_ptr<Dataset> open_folder_pairs(const std::filesystem::path& folder);
/// Whether there are images/ and masks/ or targets/.
bool is_folder_pairs(const std::filesystem::path& folder);

}  // namespace athanor
