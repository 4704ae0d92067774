#pragma once

#include <cstdio>
#include <string>
#include <string_view>

/// Text as a terminal shows it. A column is a code point: nothing here is wider.
namespace athanor::terminal {

/// Where nobody knows better.
inline constexpr int kColumns = 80;

/// Columns of the terminal that `out` writes to; of the one this process was started from where `out` has
/// none of its own (mpirun's ranks); else kColumns.
int columns_of(std::FILE* out);

/// Columns that UTF-8 text takes.
int width_of(std::string_view text);

/// The text with line breaks in place of spaces where it would be longer than `columns`, lines after the
/// first indented by `indent`. A word that does not fit in has a line of its own. `at_marks`: rather after a
/// comma or semicolon, so that numbers stay with what they count.
std::string wrapped(std::string_view text, int columns, int indent, bool at_marks = false);

/// As a shell takes it for one word.
std::string quoted(const std::string& word);

/// What a line that moves shows.
struct LiveLine {
  std::string epoch;              ///< "    3"
  double done = 0;                ///< of the whole, in [0, 1]
  std::string step, loss, speed;  ///< "step 12/937", "loss 0.9852", "9,881 images/s"
  std::string left;               ///< "4.4 s left"
};

/// One line of fewer than `columns` columns, so that it can be overwritten: the bar gives way first, then
/// what is said least often elsewhere.
std::string fit(const LiveLine& line, int columns);

}  // namespace athanor::terminal
