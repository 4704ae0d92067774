#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "tensor/philox.h"
#include "tensor/tensor.h"

namespace athanor::random_ops {

/// What the elements of a tensor are drawn from.
struct Values {
  double low = -3, high = 3;
  bool wide = false;    ///< every third one of any magnitude its dtype has, of integers every second
  bool special = true;  ///< may hold NaN, infinities, denormals and zeros of both signs, where the case does
  bool positive = false;  ///< special values, too
  bool zeros = false;     ///< every third one is 0
  bool denormal = true;   ///< whether special values may be denormal
};

/// The random choices of one case: a function of the seed, the op and the case's number, whatever other ops
/// there are.
class Draw {
 public:
  Draw(std::uint64_t seed, const std::string& op, std::uint64_t number);

  bool chance(double probability) { return uniform(0, 1) < probability; }
  double uniform(double low, double high);
  /// From both ends on.
  std::int64_t integer(std::int64_t low, std::int64_t high);
  template <class T> T choose(std::initializer_list<T> values) {
    return values.begin()[integer(0, static_cast<std::int64_t>(values.size()) - 1)];
  }
  /// A multiple of 1/8, which every floating dtype holds.
  double number(double low, double high);

  /// The size of an axis, at most `most`: often 1, seldom `least` where that is 0.
  std::int64_t size(std::int64_t most, std::int64_t least = 0);
  /// A shape of at most `elements` elements; seldom one axis of up to `longest`.
  Shape shape(int least_rank, int most_rank, std::int64_t elements = 200, std::int64_t longest = 1 << 15);
  /// One that broadcasts to `wanted`.
  Shape broadcasting_to(const Shape& wanted);

  /// A tensor in any layout: dense, transposed, with gaps, off alignment, with axes of stride 0.
  Tensor tensor(const Shape& shape, DType dtype, const Values& values = {});
  /// A dense one.
  Tensor dense(const Shape& shape, DType dtype, const Values& values = {});

  /// Whether special values occur in this case, and whether such that are not finite do.
  bool special = false, nonfinite = false;

 private:
  std::int64_t length();
  double element(DType dtype, const Values& values);
  double special_element(DType dtype, const Values& values);

  RandomKey key_;
  std::uint64_t next_ = 0;
};

/// Logits: small, or of a magnitude that overflows an exponential.
inline Values logit_values(Draw& draw, double size = 3) {
  const double reach = draw.chance(0.1) ? 1e4 : size;
  return {.low = -reach, .high = reach};
}

/// The largest finite value and the smallest positive one of a floating dtype.
double largest(DType dtype);
double smallest(DType dtype);

}  // namespace athanor::random_ops
