#pragma once

#include <string>

namespace athanor::tool {

/// While alive, a crash of this process, by a library that reads a damaged file, ends it with one line
/// instead of a core dump; so does a hang, and the library gets little memory beyond that in use. Only one at
/// a time.
class CrashLine {
 public:
  /// `line` is what to say: "pack: a.h5 must be whole, but reading it crashed".
  explicit CrashLine(const std::string& line);
  ~CrashLine();
  CrashLine(const CrashLine&) = delete;
  CrashLine& operator=(const CrashLine&) = delete;

  /// The library makes progress: it hangs if two minutes of CPU time pass without a call.
  static void alive();
};

}  // namespace athanor::tool
