#include "tensor/base/version.h"

namespace athanor {

const char* version() {
  return ATHANOR_VERSION;
}

}  // namespace athanor
