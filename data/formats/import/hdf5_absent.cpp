#include "data/formats/import/hdf5.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path) {
  detail::fail<IoError>(
      "hdf5: {}, offset 0: reading and writing need libhdf5, but this build was made without it; install "
      "libhdf5-dev and configure with -DATHANOR_HDF5=ON",
      path.string());
}

}  // namespace

std::unique_ptr<Dataset> open_hdf5(const std::filesystem::path& path, const FieldNames&, LabelKind) {
  refuse(path);
}
std::unique_ptr<SampleWriter> create_hdf5(const std::filesystem::path& path) {
  refuse(path);
}
std::vector<std::filesystem::path> hdf5_files(const std::filesystem::path& path,
                                              const FieldNames& /*names*/) {
  return {path};
}

}  // namespace athanor
