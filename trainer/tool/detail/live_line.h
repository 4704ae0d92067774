#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include <unistd.h>

#include "trainer/detail/terminal.h"

namespace athanor::tool {

/// A live line on stderr; does nothing without a terminal.
class LiveLine {
 public:
  ~LiveLine() { clear(); }

  /// Whether the line may be updated now: at most ten times a second.
  bool due() {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - shown_ < std::chrono::milliseconds(100)) return false;
    shown_ = now;
    return true;
  }
  void show(const std::string& text) {
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    visible_ = true;
  }
  void clear() {
    if (visible_) std::fputs("\r\033[K", stderr);
    visible_ = false;
  }

 private:
  bool terminal_ = isatty(STDERR_FILENO) != 0 && !terminal::is_dumb();
  bool visible_ = false;
  std::chrono::steady_clock::time_point shown_{};
};

}  // namespace athanor::tool
