#include "kernels/context.h"

namespace athanor::detail {

constinit thread_local AccountContext* account = nullptr;

}  // namespace athanor::detail
