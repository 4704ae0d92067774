#pragma once

#include <atomic>

namespace athanor::detail {

/// While set, the CPU's allocator fills each block that it hands out with 0xff: NaN in a floating dtype, -1
/// in another. Tests set it, so that memory which a kernel or a library leaves unwritten shows.
extern constinit std::atomic<bool> fill_fresh_memory;

}  // namespace athanor::detail
