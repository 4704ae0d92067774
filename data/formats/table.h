#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"

namespace athanor {

/// Samples listed in a UTF-8 table: a CSV file (.csv, RFC 4180, names in the first row) or JSON lines
/// (.jsonl, one object per line). Each column is a field. File names are relative to the table's folder, or
/// absolute.
///
///     image,mask,label,centre.0,centre.1
///     photos/a.jpg,masks/a.png,cat,12.5,8
///
///     {"image": "a.jpg", "box:boxes": [[4, 4, 20, 30]], "label": 2}
///     {"image": "b.jpg", "box:boxes": [[0, 9, 7, 12]], "label": 0}
///
/// "image" is a required file. "label" is an integer, or a class name, numbered in byte order; in a CSV file
/// all labels are names if any is not a number. Other columns with image files are masks if the name is
/// "mask" or ends in "_mask", else targets. Columns of numbers, which must be finite, are values: i64 if all
/// are integers, else f32. CSV columns NAME.0, NAME.1, ... are one field. "NAME:KIND" sets another FieldKind.
/// All rows have the same columns, and equally many numbers. Throws IoError naming line and field otherwise.
std::unique_ptr<Dataset> open_table(const std::filesystem::path& path);

/// A folder with images/ and, for each further field, a folder of files with the same names (any suffix):
/// masks/, targets/ or another with images in it. A field's name is the folder's without a final "s": masks
/// if it is "mask" or ends in "_mask", else targets. Hidden files and folders are ignored. Throws IoError
/// naming a file without partner, or two of one name.
std::unique_ptr<Dataset> open_folder_pairs(const std::filesystem::path& folder);
/// Whether the folder has images/ and masks/ or targets/.
bool is_folder_pairs(const std::filesystem::path& folder);

}  // namespace athanor
