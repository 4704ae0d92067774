#include "data/formats/npy.h"
#include "tensor/base/error.h"

namespace athanor {

std::unique_ptr<Dataset> open_npz(const std::filesystem::path& path, const FieldNames&, LabelKind) {
  detail::fail<IoError>(
      "npz: {}, offset 0: reading needs libzip, but this build was made without it; install libzip-dev and "
      "configure with -DATHANOR_LIBZIP=ON, or write .npy files",
      path.string());
}

}  // namespace athanor
