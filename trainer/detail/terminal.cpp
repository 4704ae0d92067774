#include "trainer/detail/terminal.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tensor/base/printable.h"

namespace athanor::terminal {
namespace {

constexpr int kBar = 24, kShortestBar = 4;
constexpr std::string_view kGap = "  ";

int ask(int file) {
  winsize size{};
  return file >= 0 && ::ioctl(file, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string bar(double share, int cells) {
  const int full = static_cast<int>(share * cells);
  std::string text;
  for (int i = 0; i < cells; ++i) text += i < full ? "━" : "─";
  return text;
}

}  // namespace

bool is_dumb() {
  const char* const kind = std::getenv("TERM");
  return kind && std::string_view(kind) == "dumb";
}

int columns_of(std::FILE* out) {
  if (const int columns = ask(fileno(out)); columns > 0) return columns;
  const int terminal = ::open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC);
  const int columns = ask(terminal);
  if (terminal >= 0) ::close(terminal);
  return columns > 0 ? columns : kColumns;
}

int width_of(std::string_view text) {
  return static_cast<int>(
      std::count_if(text.begin(), text.end(), [](unsigned char byte) { return (byte & 0xc0) != 0x80; }));
}

std::string wrapped(std::string_view text, int columns, int indent, bool at_marks) {
  std::string all;
  for (int room = columns;; room = columns - indent) {
    if (width_of(text) <= room) return all += text;
    // The last space within reach; preferably after a mark, unless that leaves a line half empty.
    std::size_t end = std::string_view::npos, marked = end;
    for (std::size_t at = text.find(' ', text.find_first_not_of(' ')); at != std::string_view::npos;
         at = text.find(' ', text.find_first_not_of(' ', at))) {
      const int taken = width_of(text.substr(0, at));
      if (taken > room && end != std::string_view::npos) break;
      end = at;
      const bool mark = at_marks && (text[at - 1] == ',' || text[at - 1] == ';');
      if (mark && 2 * taken >= room && taken <= room) marked = at;
      if (taken > room) break;  // a word on its own line, which is too long
    }
    if (marked != std::string_view::npos) end = marked;
    all += text.substr(0, end);
    const std::size_t next = text.find_first_not_of(' ', std::min(end, text.size()));
    if (next == std::string_view::npos) return all;
    all += '\n' + std::string(static_cast<std::size_t>(indent), ' ');
    text.remove_prefix(next);
  }
}

std::string line_for(std::FILE* out, const std::string& text) {
  if (::isatty(fileno(out)) == 0) return text;
  const int columns = columns_of(out);
  std::string all;
  for (std::size_t begin = 0, end = 0; begin <= text.size(); begin = end + 1) {
    end = std::min(text.find('\n', begin), text.size());
    all += (begin > 0 ? "\n" : "") + wrapped(text.substr(begin, end - begin), columns, 0);
  }
  return all;
}

void say(std::FILE* out, const std::string& line) {
  std::fprintf(out, "%s\n", line_for(out, line).c_str());
}

std::string quoted(const std::string& word) {
  if (word.empty() || is_name(word, "_./+-=,:@%")) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

LiveLine::LiveLine(std::FILE* out) : LiveLine(out, ::isatty(fileno(out)) != 0 && !is_dumb()) {}

bool LiveLine::due() {
  const auto now = std::chrono::steady_clock::now();
  if (!live_ || now - shown_ < std::chrono::milliseconds(100)) return false;
  shown_ = now;
  return true;
}

void LiveLine::show(const std::string& text) {
  std::fprintf(out_, "\r\033[K%s", text.c_str());
  std::fflush(out_);
  visible_ = true;
}

void LiveLine::clear() {
  if (std::exchange(visible_, false)) std::fputs("\r\033[K", out_);
}

std::string fit(const ProgressParts& line, int columns) {
  const std::string percent = fmt::format("{:>3.0f} %", 100 * line.done);
  const std::string* const shown[] = {&percent, &line.step, &line.loss, &line.speed, &line.left};
  const std::vector<const std::string*> going{&line.speed, &line.left, &line.loss, &line.step};
  const int room = columns - 1;  // terminals wrap a line that ends in the last column
  for (auto gone = going.begin();; ++gone) {
    std::string rest;
    for (const std::string* const part : shown) {
      if (std::find(going.begin(), gone, part) == gone) rest += fmt::format("{}{}", kGap, *part);
    }
    const int taken = width_of(line.epoch) + width_of(rest);
    const int cells = std::min(kBar, room - taken - width_of(kGap));
    if (cells >= kShortestBar) return fmt::format("{}{}{}{}", line.epoch, kGap, bar(line.done, cells), rest);
    if (taken <= room || gone == going.end())
      return (line.epoch + rest).substr(0, static_cast<std::size_t>(std::max(room, 0)));
  }
}

}  // namespace athanor::terminal
