#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/op_trace.h"
#include "nn/module.h"

// A model as a list of ops on values, derived from two runs with batches of two and three samples: shapes
// reveal which sizes grow with the batch.

namespace athanor::nn::traced {

inline constexpr std::int64_t kBatches[] = {2, 3};

/// A value of a program, from each run.
struct Value {
  Tensor two, three;
  std::string name;         ///< of a parameter or buffer in the model, else empty
  bool varies = false;      ///< with the input, or its shape varies with the batch
  const char* caller = "";  ///< of Program, for messages

  int rank() const { return two.rank(); }
  /// The multiple of N in an axis's size; 0: fixed. Throws ArgumentError if it is neither.
  std::int64_t batches_in(int axis) const;
  bool has_fixed_shape() const { return two.shape() == three.shape(); }
  bool is_fixed() const { return !varies && has_fixed_shape(); }
};

/// One op of a program.
struct Op {
  std::string name;
  std::vector<Value*> inputs;  ///< null if omitted
  std::vector<Value*> outputs;
  const TracedOp *two, *three;  ///< from each run
  std::string layer;            ///< module whose weights this op, or its nearest predecessor, reads; or ""
  const char* caller;           ///< of Program, for messages

  Value& x(int i = 0) const { return *inputs.at(static_cast<std::size_t>(i)); }
  Value* optional(int i) const { return inputs.at(static_cast<std::size_t>(i)); }
  Value& y(int i = 0) const { return *outputs.at(static_cast<std::size_t>(i)); }
  /// "'affine', at or after the layer 'before'," for messages.
  std::string described() const;
  /// An attribute's numbers. Throws ArgumentError if the runs differ in it.
  std::vector<double> numbers(std::string_view attribute) const;
  double number(std::string_view attribute) const { return numbers(attribute).at(0); }
  std::vector<std::int64_t> integers(std::string_view attribute) const;
  std::int64_t integer(std::string_view attribute) const { return integers(attribute).at(0); }
};

/// The two runs of a model merged into one program.
class Program {
 public:
  /// `sample`: the shape of one input, without N. `caller`, of static lifetime, begins messages. Throws
  /// ArgumentError on a model that calls other ops for another batch.
  Program(const char* caller, Module& model, const Shape& sample, Device device);
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// The ops that the output needs, in order.
  std::vector<const Op*> ops() const;
  Value& input() const { return *input_; }
  Value& output() const { return *output_; }

 private:
  struct Run;
  struct Places;

  void read(const Run& two, const Run& three, const Module& model);
  Value& new_value(const Tensor& two, const Tensor& three);
  void read_op(const TracedOp& two, const TracedOp& three, Places& places);

  const char* caller_;
  std::vector<TracedOp> traced_[2];
  std::deque<Value> values_;
  std::deque<Op> ops_;
  Value* input_ = nullptr;
  Value* output_ = nullptr;
};

}  // namespace athanor::nn::traced
