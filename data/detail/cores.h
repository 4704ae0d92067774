#pragma once

namespace athanor::detail {

/// Number of cores this process may use, at least 1.
int usable_cores();

}  // namespace athanor::detail
