#include "data/formats/import/lmdb.h"
#include "tensor/base/error.h"

namespace athanor {

std::unique_ptr<Dataset> open_lmdb(const std::filesystem::path& path, const FieldNames& /*names*/) {
  detail::fail<IoError>(
      "lmdb: {}: reading needs liblmdb, but this build was made without it; install liblmdb-dev and "
      "configure "
      "with -DATHANOR_LMDB=ON",
      lmdb_files(path)[0].string());
}

}  // namespace athanor
