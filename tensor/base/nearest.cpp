#include "tensor/base/nearest.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace athanor {
namespace {

/// Letters that are not distinguished: upper and lower case, and what joins words.
char folded(char c) {
  return c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool same(char a, char b) {
  return folded(a) == folded(b);
}

/// Insertions, deletions, replacements, and swaps of neighbours. Source: Damerau 1964.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  // Distances of every prefix of b to the last prefix of a, and to the two before.
  std::vector<std::size_t> row(b.size() + 1), before(row), older(row);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    older.swap(before);
    before.swap(row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({before[j] + (same(a[i], b[j]) ? 0 : 1), before[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && same(a[i], b[j - 1]) && same(a[i - 1], b[j]))
        row[j + 1] = std::min(row[j + 1], older[j - 1] + 1);
    }
  }
  return row[b.size()];
}

/// "optim" of "optimizer", "weight" of "conv1.weight". Not "loss" of "loss-scale": another word makes it
/// another thing.
bool is_part_of(std::string_view name, std::string_view candidate) {
  constexpr std::size_t kShortest = 4;
  if (name.size() < kShortest || name.size() >= candidate.size()) return false;
  const std::size_t rest = candidate.size() - name.size();
  return (candidate.starts_with(name) && folded(candidate[name.size()]) != '-') ||
         (candidate.ends_with(name) && folded(candidate[rest - 1]) != '-');
}

}  // namespace

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  constexpr std::size_t kLongest = 256;  // names a person types; keeps hostile ones cheap
  const std::size_t letters = name.size() - std::min(name.find_first_not_of('-'), name.size());
  if (letters == 0 || name.size() > kLongest) return std::nullopt;
  std::optional<std::string> nearest;
  // Of a word of one or two letters, one wrong letter leaves nothing that tells.
  std::size_t best = letters < 3 ? 1 : std::max<std::size_t>(1, letters / 5) + 1;
  for (const std::string& candidate : candidates) {
    if (candidate.empty() || candidate.size() > kLongest) continue;
    const std::size_t distance = is_part_of(name, candidate) ? 1 : edit_distance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> candidates) {
  const std::optional<std::string> nearest = nearest_name(name, candidates);
  return nearest ? fmt::format("; did you mean '{}'?", *nearest) : "";
}

}  // namespace athanor
