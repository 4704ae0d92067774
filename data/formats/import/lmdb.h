#pragma once

#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "data/dataset.h"
#include "data/formats/field_names.h"

namespace athanor {

/// An LMDB environment: a folder with data.mdb, or such a file. Samples are the values of its main database,
/// in the order of their keys, at least one. A value is one of:
///
///     Caffe's Datum: raw bytes, channels first, which become [H, W, C] with the channels in their order
///         (convert_imageset's is blue, green, red), or an encoded image; with a label
///     a JPEG, PNG or WebP, of one of these keys
///         image-K, whose label is the text of a whole number at the key label-K; `names` gives other
///             beginnings of these keys
///         CLASS/K, in a class for each folder
///     an image that older versions of this library wrote, behind a header that begins with ATH1
///
/// A count of the samples (num-samples, __len__) is no sample. liblmdb crashes on damaged files: for the
/// process of `athanor pack` (data/formats/import/cache.h). Throws IoError naming the file and the key, also
/// in a build without liblmdb. Source: liblmdb 0.9; caffe/proto/caffe.proto.
std::unique_ptr<Dataset> open_lmdb(const std::filesystem::path& path, const FieldNames& names = {});

/// The one file of an environment.
inline std::vector<std::filesystem::path> lmdb_files(const std::filesystem::path& path,
                                                     const FieldNames& /*names*/ = {}) {
  std::error_code error;
  return {std::filesystem::is_directory(path, error) ? path / "data.mdb" : path};
}

}  // namespace athanor
