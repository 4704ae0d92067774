#pragma once

#include <cstdint>

namespace athanor::test {

/// Calls of the global operator new so far, over all threads, but for those oneDNN makes. Link
/// tests/support/count_new.cpp.
std::int64_t news();

}  // namespace athanor::test
