#pragma once

#include <map>
#include <string>
#include <vector>

#include "autograd/shape.h"
#include "examples/athanor_tool/run_op.h"
#include "tests/random_ops/array.h"
#include "tests/random_ops/draw.h"

namespace athanor::random_ops {

/// All elements, in row-major order; i64 with all of its digits, of which a double holds 53.
std::vector<Real> numbers_of(const Tensor& x);

/// A call that is being drawn.
struct Case {
  Draw& draw;
  DType dtype;
  tool::OpCall& call;

  template <class T> T set(const char* attribute, const T& value) {
    call.attributes[attribute] = value;
    return value;
  }
  Tensor give(const std::string& name, const Tensor& tensor) {
    call.tensors.set(name, tensor);
    return tensor;
  }
  /// An input of the case's dtype, in any layout.
  Tensor input(const std::string& name, const Shape& shape, const Values& values = {}) {
    return give(name, draw.tensor(shape, dtype, values));
  }
  /// What parameters and statistics are kept in.
  DType wide_dtype() const { return dtype == DType::f64 ? DType::f64 : DType::f32; }
};

/// The same call, as its reference reads it.
class Given {
 public:
  Given(const tool::OpCall& call, DType dtype, const std::map<std::string, std::string>& same = {})
      : result(dtype), call_(call), same_(same) {}

  /// An input; the gradient of a floating one is compared, once for a tensor that has several names. Empty
  /// where there is none of that name.
  Array in(const std::string& name);
  /// One that has no gradient.
  Array constant(const std::string& name) const;
  bool has(const std::string& name) const { return call_.tensors.contains(name); }
  const Tensor& tensor(const std::string& name) const { return call_.tensors.tensor(name); }
  const std::string& op() const { return call_.op; }

  bool given(const char* name) const { return call_.attributes.contains(name); }
  template <class T> T attribute(const char* name, T fallback) const {
    return call_.attributes.value(name, fallback);
  }
  /// Axes as they are named, or all where none is.
  std::vector<bool> axes(int rank, const std::vector<int>& named) const;
  int axis(int rank, int fallback = -1) const;

  DType result;                          ///< of y; that of the case where the reference sets no other
  std::map<std::string, Array> buffers;  ///< what the op moves besides
  const std::map<std::string, Array>& leaves() const { return leaves_; }

 private:
  const tool::OpCall& call_;
  const std::map<std::string, std::string> same_;
  std::map<std::string, Array> leaves_;
};

enum class Types : std::uint8_t { floating, numbers, any };

struct RandomOp {
  std::string name;
  Types types;
  void (*draw)(Case&);
  Array (*reference)(Given&);
};

/// Ops whose results do not exist where a window or an index is out of place draw again.
using RandomOps = std::vector<RandomOp>;

RandomOps pointwise_ops();
RandomOps binary_ops();
RandomOps reduce_ops();
RandomOps norm_ops();
RandomOps loss_ops();
RandomOps pair_loss_ops();
RandomOps similarity_ops();
RandomOps matmul_ops();
RandomOps conv_ops();
RandomOps pool_ops();
RandomOps image_ops();
RandomOps shape_ops();
RandomOps index_ops();

/// All of them.
RandomOps random_ops();

/// A unary op of one number, and its derivative.
struct Scalar {
  Real (*f)(Real);
  Real (*derivative)(Real);
};
const std::map<std::string, Scalar>& scalars();

/// x, through the activation of that name; itself for none.
Var activate(Var x, const std::string& name);
/// The logarithms of a softmax, or the softmax itself. The slice is not empty.
std::vector<Var> log_softmax(const std::vector<Var>& slice, bool logarithm = true);
/// mean, sum or none of the losses.
Array reduce_losses(const Array& losses, const std::string& reduction);

}  // namespace athanor::random_ops
