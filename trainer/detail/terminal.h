#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>

/// Text layout for terminals. A column is a code point: no wider characters are used.
namespace athanor::terminal {

/// The default width.
inline constexpr int kColumns = 80;

/// Whether the terminal knows no escape sequences, as TERM=dumb says: its lines cannot be overwritten.
bool is_dumb();

/// Columns of the terminal that `out` writes to. If `out` has no terminal (mpirun's ranks), that of the
/// process's controlling terminal; else kColumns.
int columns_of(std::FILE* out);

/// Width of UTF-8 text in columns.
int width_of(std::string_view text);

/// Wraps text at spaces to at most `columns`, with lines after the first indented by `indent`. A word that is
/// too long gets its own line. `at_marks`: prefers breaks after a comma or semicolon, so that numbers stay
/// with their units.
std::string wrapped(std::string_view text, int columns, int indent, bool at_marks = false);

/// Lines that go to `out`: wrapped at spaces if that is a terminal, else unchanged.
std::string line_for(std::FILE* out, const std::string& text);

/// Prints a line, like line_for().
void say(std::FILE* out, const std::string& line);

/// Quoted as one word for a shell.
std::string quoted(const std::string& word);

/// A line that is overwritten; does nothing without a terminal.
class LiveLine {
 public:
  /// `live`: whether `out` is a terminal that can do so; detected by default.
  explicit LiveLine(std::FILE* out = stderr);
  LiveLine(std::FILE* out, bool live) : out_(out), live_(live) {}
  ~LiveLine() { clear(); }
  LiveLine(const LiveLine&) = delete;
  LiveLine& operator=(const LiveLine&) = delete;

  bool live() const { return live_; }
  /// Whether the line may be updated now: at most ten times a second.
  bool due();
  void show(const std::string& text);
  /// Erases it.
  void clear();

 private:
  std::FILE* out_;
  bool live_, visible_ = false;
  std::chrono::steady_clock::time_point shown_ = std::chrono::steady_clock::now();
};

/// The content of a progress line.
struct ProgressParts {
  std::string epoch;              ///< "    3"
  double done = 0;                ///< fraction, in [0, 1]
  std::string step, loss, speed;  ///< "step 12/937", "loss 0.9852", "9,881 images/s"
  std::string left;               ///< "4.4 s left"
};

/// One line of fewer than `columns` columns, so that it can be overwritten: drops the bar first, then the
/// parts that rarely appear elsewhere.
std::string fit(const ProgressParts& line, int columns);

}  // namespace athanor::terminal
