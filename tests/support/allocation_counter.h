#pragma once

#include <cstdint>

namespace athanor::test {

/// Calls of the global operator new so far, all threads together. Linking allocation_counter.cpp into a test
/// binary replaces the operator by one that counts.
std::int64_t operator_news();

}  // namespace athanor::test
