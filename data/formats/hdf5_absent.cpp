#include "data/formats/hdf5.h"
#include "tensor/error.h"

namespace athanor {
namespace {

[[noreturn]] void fail_absent(const std::filesystem::path& path) {
  detail::fail<IoError>(
      "hdf5: {}, offset 0: reading and writing take libhdf5, but this build was made without it; install "
      "libhdf5-dev and "
      "configure with -DATHANOR_HDF5=ON",
      path.string());
}

}  // namespace

std::unique_ptr<SampleStore> open_hdf5(const std::filesystem::path& path, const Hdf5Options& /*options*/) {
  fail_absent(path);
}

std::unique_ptr<SampleWriter> create_hdf5(const std::filesystem::path& path, int /*deflate*/) {
  fail_absent(path);
}

}  // namespace athanor
