#include "data/formats/detail/zip_reader.h"
#include "tensor/error.h"

namespace athanor::detail {

ZipReader::ZipReader(const std::filesystem::path& path)
    : file_(path, "npz", "install libzip-dev and configure with -DATHANOR_LIBZIP=ON, or write .npy files") {
  fail("reading .npz takes libzip, but this build was made without it");
}
ZipReader::~ZipReader() = default;
bool ZipReader::has(const std::string& /*member*/) const {
  return false;
}
std::int64_t ZipReader::size(const std::string& /*member*/) const {
  return 0;
}
std::shared_ptr<const FileBytes> ZipReader::read(const std::string& /*member*/, std::int64_t /*most*/) const {
  return nullptr;
}

}  // namespace athanor::detail
