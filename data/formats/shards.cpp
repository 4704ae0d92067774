#include "data/formats/shards.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <optional>
#include <set>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/ranges.h>
#include <glob.h>

#include "data/check_labels.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/join.h"
#include "data/relabelled.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"

namespace athanor {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxShards = std::size_t{1} << 20;

bool is_there(const fs::path& at) {
  std::error_code error;
  return fs::exists(at, error) || error == std::errc::permission_denied;  // which is an error of its own
}

constexpr std::string_view kComma = "\\,";  // within a name

/// The parts between commas, without blanks around them; a comma in braces or brackets belongs to them, and
/// so does one behind a backslash to its part.
std::vector<std::string> at_commas(std::string_view text) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (text.substr(at).starts_with(kComma)) {
      parts.back() += kComma;
      ++at;
    } else if (c == ',' && depth <= 0) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  for (std::string& part : parts) part = detail::trimmed(part);
  return parts;
}

/// Those of a text that names several. Throws if one is empty.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts = at_commas(text);
  if (std::ranges::find(parts, "") != parts.end())
    detail::fail<IoError>(
        "data: {} must have a file or folder on each side of a comma, but one side is empty",
        printable(text));
  return parts;
}

std::string with_replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// The numbers of "000..147" or "0..9..3", with as many digits as the longer end if one begins with a zero.
std::optional<std::vector<std::string>> numbers_of(std::string_view range) {
  std::vector<std::int64_t> numbers;
  std::size_t digits = 0;
  bool padded = false;
  for (std::size_t at = 0; at <= range.size();) {
    const std::size_t end = std::min(range.find("..", at), range.size());
    const std::string_view text = range.substr(at, end - at);
    std::int64_t number = 0;
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || stop != text.data() + text.size() || number < 0) return std::nullopt;
    if (numbers.size() < 2) {
      digits = std::max(digits, text.size());
      padded = padded || (text.size() > 1 && text[0] == '0');
    }
    numbers.push_back(number);
    at = end + 2;
  }
  if (numbers.size() < 2 || numbers.size() > 3) return std::nullopt;
  const std::int64_t first = numbers[0], last = numbers[1];
  const std::int64_t step = numbers.size() == 3 ? std::max<std::int64_t>(numbers[2], 1) : 1;
  const std::int64_t count = std::abs(last - first) / step + 1;
  if (count > static_cast<std::int64_t>(kMaxShards))
    detail::fail<IoError>("data: {{{}}} must be at most {} shards, but is {}", detail::printable(range),
                          kMaxShards, count);
  std::vector<std::string> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(fmt::format("{:0{}}", first < last ? first + i * step : first - i * step,
                              padded ? digits : std::size_t{1}));
  return all;
}

/// Braces that expand: where they are, and what stands for them.
struct Braces {
  std::size_t first = 0, end = 0;
  std::vector<std::string> choices;
};

/// The first ones in `text`.
std::optional<Braces> first_braces(const std::string& text) {
  for (std::size_t open = text.find('{'); open != text.npos; open = text.find('{', open + 1)) {
    Braces braces{.first = open, .end = 0, .choices = {""}};
    int depth = 0;
    for (std::size_t at = open; at < text.size() && braces.end == 0; ++at) {
      const char c = text[at];
      if (c == '}' && --depth == 0) {
        braces.end = at + 1;
      } else if (c == ',' && depth == 1) {
        braces.choices.emplace_back();
      } else if (at > open) {
        braces.choices.back() += c;
      }
      depth += c == '{';
    }
    if (braces.end == 0) continue;
    if (braces.choices.size() > 1) return braces;
    if (auto numbers = numbers_of(braces.choices[0])) {
      braces.choices = std::move(*numbers);
      return braces;
    }
  }
  return std::nullopt;
}

/// All that braces stand for, in bash's order.
std::vector<std::string> without_braces(const std::string& text) {
  std::vector<std::string> all, todo{text};  // the last of `todo` comes next
  while (!todo.empty()) {
    const std::string next = std::move(todo.back());
    todo.pop_back();
    const std::optional<Braces> braces = first_braces(next);
    if (!braces) {
      all.push_back(next);
    } else {
      for (auto choice = braces->choices.rbegin(); choice != braces->choices.rend(); ++choice)
        todo.push_back(next.substr(0, braces->first) + *choice + next.substr(braces->end));
    }
    if (all.size() + todo.size() > kMaxShards)
      detail::fail<IoError>("data: {} must be at most {} shards, but is more", printable(text), kMaxShards);
  }
  return all;
}

bool is_glob(std::string_view text) {
  return text.find_first_of("*?[") != text.npos;
}

/// The names that match, in byte order.
std::vector<fs::path> matches_of(const std::string& pattern) {
  glob_t found{};
  const int result = ::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<fs::path> all(found.gl_pathv, found.gl_pathv + (result == 0 ? found.gl_pathc : 0));
  ::globfree(&found);
  if (all.empty())
    detail::fail<IoError>("data: {} must match at least one file or folder, but matches none",
                          printable(pattern));
  std::ranges::sort(all, {}, [](const fs::path& one) { return one.native(); });
  return all;
}

/// The shards with the same names of classes: unchanged if they have, and else those of all of them.
void match_classes(std::vector<std::shared_ptr<const Dataset>>& parts, const std::vector<fs::path>& shards) {
  const std::vector<std::string> first = parts[0]->class_names();
  std::set<std::string> all;
  bool same = true;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<std::string> names = parts[i]->class_names();
    if (names.empty() != first.empty()) {
      const auto [with, without] =
          names.empty() ? std::pair(std::size_t{0}, i) : std::pair(i, std::size_t{0});
      detail::fail<IoError>("data: {} must have names of classes, because {} has, but has only their numbers",
                            printable(shards[without].string()), printable(shards[with].string()));
    }
    same = same && names == first;
    all.insert(names.begin(), names.end());
  }
  if (same) return;
  const std::vector<std::string> names(all.begin(), all.end());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    try {
      parts[i] = with_classes(parts[i], names);
    } catch (const ArgumentError& error) {
      detail::fail<IoError>("data: {}: {}", printable(shards[i].string()), error.what());
    }
  }
}

/// Opens those of several labels again, with the names of all, unless these are equal.
void match_labels(std::vector<std::shared_ptr<const Dataset>>& parts, const std::vector<fs::path>& shards,
                  const OpenShard& open) {
  std::vector<std::string> names;
  std::set<std::string> all;
  for (const auto& part : parts) {
    if (!part) continue;
    if (!has_several_labels(*part)) return;
    const std::vector<std::string> own = part->class_names();
    if (names.empty()) names = own;
    all.insert(own.begin(), own.end());
  }
  if (all.size() != names.size()) names.assign(all.begin(), all.end());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::vector<std::string> own = parts[i] ? parts[i]->class_names() : names;
    if (!own.empty() && own != names) parts[i] = open(shards[i], names);
  }
}

}  // namespace

std::vector<fs::path> shards_of(const fs::path& text) {
  if (!names_several(text)) return {text};
  std::vector<fs::path> shards;
  std::vector<std::string> missing;
  for (const std::string& written : parts_of(text.string())) {
    const std::string part = with_replaced(written, kComma, ",");
    if (is_there(part)) {
      shards.emplace_back(part);
      continue;
    }
    for (const std::string& name : without_braces(part)) {
      if (is_glob(name) && !is_there(name)) {
        const std::vector<fs::path> found = matches_of(name);
        shards.insert(shards.end(), found.begin(), found.end());
      } else {
        shards.emplace_back(name);
        if (!is_there(name)) missing.push_back(printable(name));
      }
    }
  }
  if (!missing.empty())
    detail::fail<IoError>(
        "data: all {} shards of {} must exist, but {} missing: {}", shards.size(), printable(text.string()),
        missing.size() == 1 ? "1 is" : fmt::format("{} are", missing.size()), fmt::join(missing, ", "));
  return shards;
}

bool names_several(const fs::path& text) {
  const std::string name = text.string();
  const bool has_comma = at_commas(name).size() > 1 || name.find(kComma) != name.npos;
  return (is_glob(name) || has_comma || first_braces(name)) && !is_there(text);
}

fs::path joined_shards(const std::vector<std::string>& texts) {
  std::vector<std::string> parts;
  for (const std::string& text : texts)
    parts.push_back(is_there(text) ? with_replaced(text, ",", kComma) : text);
  return texts.size() == 1 ? texts[0] : fmt::format("{}", fmt::join(parts, ","));
}

fs::path shards_below(const fs::path& folder, const fs::path& text) {
  if (!names_several(text) || is_there(folder / text)) return folder / text;
  std::string all;
  for (const std::string& part : parts_of(text.string()))
    all += (all.empty() ? "" : ",") + (folder / part).string();
  return all;
}

std::unique_ptr<Dataset> open_shards(const std::vector<fs::path>& shards, const OpenShard& open,
                                     const ShardOptions& options) {
  std::vector<std::shared_ptr<const Dataset>> parts(shards.size());
  std::vector<std::exception_ptr> errors(shards.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next.fetch_add(1)) < shards.size();) {
      try {
        parts[i] = open(shards[i], {});
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < std::min(options.threads, static_cast<int>(shards.size())); ++i)
      helpers.emplace_back(work);
    work();
  }
  match_labels(parts, shards, open);
  const auto good = std::ranges::find_if(parts, [](const auto& part) { return part != nullptr; });
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (!errors[i]) continue;
    if (!options.keep_damaged || good == parts.end()) std::rethrow_exception(errors[i]);
    try {
      std::rethrow_exception(errors[i]);
    } catch (const IoError& error) {
      parts[i] = unreadable_sample(**good, error.what(), damaged_file(shards[i].string(), "all"));
    }
  }
  match_classes(parts, shards);
  try {
    return join(std::move(parts), options.beside);
  } catch (const ArgumentError& error) {
    detail::fail<IoError>("data: {}", error.what());
  }
}

}  // namespace athanor
