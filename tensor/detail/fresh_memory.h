#pragma once

#include <atomic>

namespace athanor::detail {

/// While set, the CPU allocator fills each new block with 0xff: NaN in a floating dtype, -1 in others. Tests
/// set it to reveal memory that a kernel or library leaves unwritten.
extern constinit std::atomic<bool> fill_fresh_memory;

}  // namespace athanor::detail
