#pragma once

#include <filesystem>
#include <memory>

#include "data/dataset.h"
#include "data/formats/field_names.h"
#include "data/label_kind.h"
#include "data/sample_writer.h"

namespace athanor {

/// Maps NumPy's .npy, versions 1 to 3: images [N, H, W, C] or [N, H, W] u8 in C order, and labels [N] or [N,
/// 1] of any whole type and byte order; N >= 1. The labels lie beside the images, with the last "images",
/// "image" or "x" of the name (whichever occurs) replaced by "labels", "label" or "y". Throws IoError naming
/// file and offset; Fortran order is refused. Source: NumPy, numpy.lib.format.
/// Of a `kind` other than classes, the labels are [N, K] or [N] numbers of any kind: the field "labels".
std::unique_ptr<Dataset> open_npy(const std::filesystem::path& images, LabelKind kind = LabelKind::classes);

/// Writes such a pair: raw images of one size, labels as i64.
std::unique_ptr<SampleWriter> create_npy(const std::filesystem::path& images);

/// Reads two such arrays from an .npz, stored or deflated, into memory, and checks their CRC-32. `names` are
/// without .npy; else usual_names(). Throws IoError naming file, member and offset in the member, and in a
/// build without libzip. `kind`: as above.
std::unique_ptr<Dataset> open_npz(const std::filesystem::path& path, const FieldNames& names = {},
                                  LabelKind kind = LabelKind::classes);

/// Writes an .npz with the arrays "images" and "labels", not compressed. Needs no libzip.
std::unique_ptr<SampleWriter> create_npz(const std::filesystem::path& path);

}  // namespace athanor
