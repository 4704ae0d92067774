#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

namespace athanor::dist {

/// Evenly spaced ranks of a job: all, those of a node, or those with the same index on every node.
struct Group {
  int first = 0, stride = 1, size = 1;

  /// Member i, modulo size; i may be outside [0, size) by up to `size`.
  int rank(int i) const { return first + stride * ((i + size) % size); }
  int index_of(int rank) const { return (rank - first) / stride; }
};

/// Elements [begin, end) of a flat tensor.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// Piece `index` of `parts` pieces of [0, count): the first count % parts are one element larger.
constexpr Range piece_of(std::int64_t count, int parts, int index) {
  const std::int64_t small = count / parts, larger = count % parts;
  const std::int64_t begin = small * index + std::min<std::int64_t>(larger, index);
  return {begin, begin + small + (index < larger ? 1 : 0)};
}

/// All pieces.
inline std::vector<Range> equal_pieces(std::int64_t count, int parts) {
  std::vector<Range> pieces;
  pieces.reserve(static_cast<std::size_t>(parts));
  for (int i = 0; i < parts; ++i) pieces.push_back(piece_of(count, parts, i));
  return pieces;
}

/// Elements of the largest piece; 0 without any.
inline std::int64_t largest_of(std::span<const Range> pieces) {
  std::int64_t largest = 0;
  for (const Range& piece : pieces) largest = std::max(largest, piece.count());
  return largest;
}

}  // namespace athanor::dist
