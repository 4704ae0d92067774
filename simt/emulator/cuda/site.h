#pragma once

namespace simt {

/// Where in the source a call is written. Used as a default argument.
struct Site {
  const char* file = "";
  unsigned line = 0;

  static constexpr Site current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
    return {file, line};
  }
};

}  // namespace simt
