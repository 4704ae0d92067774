#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/formats/field_names.h"
#include "data/label_kind.h"

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

struct TableOptions {
  LabelKind labels = LabelKind::classes;
  FieldNames fields = {};  ///< columns; several of labels are separated by commas
  /// The names of several labels or values, in this order: those of the training set. Empty: the table's own.
  std::vector<std::string> names = {};
};
/// The same of chosen columns: an image, its labels and, if there is one that is no label, "weight". Other
/// columns are not used. Names of images without a suffix get that of the first file found; beside the table,
/// images may also be in images/ or in a folder of the table's name.
///
/// Several labels are a column of 0 and 1 for each class, or one with the names of all classes of the image:
/// "cat; dog", "cat|dog", or in quotes "cat,dog"; in a table without any of these, and without blanks in the
/// names of TableOptions, "cat dog", as in Kaggle's; in JSON lines also a list of names or numbers. An empty
/// cell is an image without classes. Values are columns of finite numbers, or lists. By default the image is
/// "image", and the labels are "labels" or "label", else all columns (several labels) or the only other one
/// (values). Throws IoError naming line and column.
std::unique_ptr<Dataset> open_table(const std::filesystem::path& path, const TableOptions& options);
/// The tables in a folder, by name.
std::vector<std::filesystem::path> tables_in(const std::filesystem::path& folder);

/// A folder with images/ and, for each further field, a folder of files with the same names (any suffix):
/// masks/, targets/ or another with images in it. A field's name is the folder's without a final "s": masks
/// if it is "mask" or ends in "_mask", else targets. Hidden files and folders are ignored. Throws IoError
/// naming a file without partner, or two of one name.
std::unique_ptr<Dataset> open_folder_pairs(const std::filesystem::path& folder);
/// Whether the folder has images/ and masks/ or targets/.
bool is_folder_pairs(const std::filesystem::path& folder);

}  // namespace athanor
