#include "data/formats/detail/hdf5_library.h"

#include "data/formats/detail/bytes.h"

namespace athanor::detail {
namespace {

std::mutex& library() {
  static std::mutex mutex;
  return mutex;
}

herr_t take_first(unsigned index, const H5E_error2_t* error, void* reason) {
  if (index == 0 && error->desc) *static_cast<std::string*>(reason) = printable(error->desc);
  return 0;
}

}  // namespace

Hdf5Lock::Hdf5Lock() : lock_(library()) {
  H5Eget_auto2(H5E_DEFAULT, &printer_, &printer_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Lock::~Hdf5Lock() {
  H5Eset_auto2(H5E_DEFAULT, printer_, printer_data_);
}

std::string hdf5_reason() {
  std::string reason = "an error the library does not name";
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, &take_first, &reason);
  return reason;
}

}  // namespace athanor::detail
