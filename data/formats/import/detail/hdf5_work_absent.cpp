#include "data/formats/import/detail/hdf5_work.h"
#include "tensor/error.h"

namespace athanor::detail {

void require_hdf5(const std::string& path) {
  fail<IoError>(
      "hdf5: {}, offset 0: reading and writing need libhdf5, but this build was made without it; install "
      "libhdf5-dev and configure with -DATHANOR_HDF5=ON",
      path);
}

void read_hdf5(const std::string& /*path*/, std::string /*images*/, std::string /*labels*/,
               ChildProcess::Owner& /*owner*/) {}
void write_hdf5(const std::string& /*path*/, int /*deflate*/, ChildProcess::Owner& /*owner*/) {}

}  // namespace athanor::detail
