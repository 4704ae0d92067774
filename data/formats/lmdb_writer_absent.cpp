#include "data/formats/lmdb.h"
#include "tensor/error.h"

namespace athanor {

std::unique_ptr<SampleWriter> create_lmdb(const std::filesystem::path& path) {
  detail::fail<IoError>(
      "lmdb: {}, offset 0: writing needs liblmdb, but this build was made without it; install liblmdb-dev "
      "and configure with -DATHANOR_LMDB=ON, or write a packed file",
      path.string());
}

}  // namespace athanor
