#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/formats/field_names.h"
#include "data/label_kind.h"
#include "data/sample_writer.h"

namespace athanor {

/// Images [N, H, W, C] or [N, H, W] u8, and labels [N], [N, 1] or [N, 1, 1, 1] of any integer type, N >= 1.
/// `names`: data sets, with their groups; a label's may lie in another file, "FILE:NAME", relative to the
/// folder of `path`. Without names: usual_names(), in `path` or with the labels in the second of
/// hdf5_files(). External and virtual data sets are refused. One thread at a time reads, quickest in order.
/// Of a `kind` other than classes, the labels are numbers [N, K] or [N]: the field "labels".
/// libhdf5 can crash and hang on damaged files: for the process of `athanor pack`
/// (data/formats/import/cache.h). Throws IoError, also in a build without libhdf5. Source: The HDF Group,
/// "HDF5 File Format Specification".
std::unique_ptr<Dataset> open_hdf5(const std::filesystem::path& path, const FieldNames& names = {},
                                   LabelKind kind = LabelKind::classes);

/// The files that open_hdf5() reads: `path`, and that of the labels if it is another: as `names` says, else
/// one beside it, A_y.h5 for A_x.h5 or A_labels.h5 for A_images.h5.
std::vector<std::filesystem::path> hdf5_files(const std::filesystem::path& path, const FieldNames& names);

/// Writes "images" [N, H, W, C] u8 and "labels" [N] i64: raw images of one size, in chunks of about 1 MiB
/// with Fletcher-32 checksums.
std::unique_ptr<SampleWriter> create_hdf5(const std::filesystem::path& path);

}  // namespace athanor
