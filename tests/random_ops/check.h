#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/random_ops/op.h"

namespace athanor::random_ops {

/// What a result must be: values, and how far a computation may be off.
struct Expected {
  std::string name;  ///< y, dx, running_mean, ...
  Shape shape;
  DType dtype;
  std::vector<Real> values;
  std::vector<Real> errors;  ///< bounds, in roundings of what sums are made in
};

/// A case, drawn and computed by the reference.
struct Drawn {
  std::uint64_t number = 0;
  DType dtype = DType::f32;
  std::string impl = "automatic";
  tool::OpCall call;
  std::map<std::string, std::string> same;  ///< inputs that are the tensor of another name
  std::vector<Expected> expected;

  /// Op, shapes, strides, dtypes and attributes, in one line.
  std::string describe() const;
};

/// Case `number` of an op: a function of these and the seed alone.
Drawn draw_case(std::uint64_t seed, const RandomOp& op, std::uint64_t number);

/// How far a result is off, in units of the last place: of the value, or of the terms it is the sum of where
/// those are larger. Not finite results must be of the same kind.
struct Difference {
  double error = 0;
  std::string wrong;       ///< what no tolerance allows: shape, dtype, kind, an integer. Empty: nothing
  bool comparable = true;  ///< shape and dtype are right
  std::size_t at = 0;      ///< where the error is largest
  double got = 0;
  std::int64_t skipped = 0;  ///< elements of which the order of steps decides whether they overflow
};
Difference difference(const Tensor& got, const Expected& expected);

}  // namespace athanor::random_ops
