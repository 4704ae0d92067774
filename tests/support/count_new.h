#pragma once

#include <cstdint>

namespace athanor::test {

/// Calls of the global operator new so far, in every form and over all threads, but for those made from
/// within oneDNN: its execute() allocates inside, which is not ours to change. Linking
/// tests/support/count_new.cpp into a test binary replaces the operator by one that counts.
std::int64_t operator_news();

/// Whether they are counted: not under a sanitizer of Clang, whose runtime has operators of its own.
bool counts_operator_news();

}  // namespace athanor::test
