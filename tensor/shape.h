#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "tensor/base/error.h"

namespace athanor {

/// The most axes that a tensor may have.
inline constexpr int kMaxRank = 8;

/// A short inline list of sizes or strides. Rank 0 is a scalar.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> dims) : Dims(std::span(dims.begin(), dims.size())) {}
  explicit Dims(std::span<const std::int64_t> dims) {
    ATH_CHECK(dims.size() <= kMaxRank, "shape: rank must be at most {}, but got {}", kMaxRank, dims.size());
    for (std::int64_t dim : dims) dims_[rank_++] = dim;
  }

  int rank() const { return rank_; }
  const std::int64_t* begin() const { return dims_.data(); }
  const std::int64_t* end() const { return dims_.data() + rank_; }
  std::int64_t* begin() { return dims_.data(); }
  std::int64_t* end() { return dims_.data() + rank_; }

  /// No range check: indices come from loops over rank(). Check a user's index with normalize_axis().
  std::int64_t operator[](int i) const { return dims_[i]; }
  std::int64_t& operator[](int i) { return dims_[i]; }

  void push_back(std::int64_t dim) {
    ATH_CHECK(rank_ < kMaxRank, "shape: rank must be at most {}", kMaxRank);
    dims_[rank_++] = dim;
  }

  bool operator==(const Dims& other) const {
    return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
  }

  /// "[2, 3]"
  std::string str() const;

 private:
  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

/// Sizes of a tensor, outermost first. Images are [N, H, W, C].
class Shape : public Dims {
 public:
  using Dims::Dims;
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> dims) : Dims(dims) {}

  std::int64_t numel() const {
    std::int64_t n = 1;
    for (std::int64_t dim : *this) n *= dim;
    return n;
  }
};

/// Distance in elements between adjacent indices of each dimension.
using Strides = Dims;

/// Row-major strides of a dense tensor of `shape`.
Strides contiguous_strides(const Shape& shape);

/// Maps -1 to the last axis, and so on. Throws ArgumentError if axis is outside [-rank, rank).
int normalize_axis(int axis, int rank, const char* op);

/// The shape that two operands broadcast to, by NumPy's rule. Throws ArgumentError naming op if they do not.
Shape broadcast_shapes(const Shape& a, const Shape& b, const char* op);

/// Whether `from` broadcasts to exactly `to`.
bool broadcasts_to(const Shape& from, const Shape& to);

}  // namespace athanor

template <> struct fmt::formatter<athanor::Dims> : fmt::formatter<std::string> {
  auto format(const athanor::Dims& dims, format_context& context) const {
    return fmt::formatter<std::string>::format(dims.str(), context);
  }
};
template <> struct fmt::formatter<athanor::Shape> : fmt::formatter<athanor::Dims> {};
