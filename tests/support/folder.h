#pragma once

#include <cstdlib>
#include <string>

namespace athanor::test {

/// A folder of the build that a test reads or writes; on a machine without that build, the one that the
/// variable of the environment names.
inline std::string folder(const char* variable, const char* of_the_build) {
  const char* elsewhere = std::getenv(variable);
  return elsewhere != nullptr ? elsewhere : of_the_build;
}

}  // namespace athanor::test
