#include "tests/random_ops/op.h"

namespace athanor::random_ops {
namespace {

Array leaves_of(const Tensor& x) {
  Array values = {x.shape(), {}};
  for (const Real value : numbers_of(x)) values.v.push_back(Var(value));
  return values;
}

}  // namespace

std::vector<Real> numbers_of(const Tensor& x) {
  std::vector<Real> numbers;
  if (x.dtype() == DType::i64) {
    const Tensor dense = contiguous(x.to(kCpu));
    for (std::int64_t i = 0; i < x.numel(); ++i)
      numbers.push_back(static_cast<Real>(dense.data<std::int64_t>()[i]));
    return numbers;
  }
  for (const double value : x.to_vector()) numbers.push_back(value);
  return numbers;
}

Array Given::in(const std::string& name) {
  if (!has(name)) return {};
  if (const auto other = same_.find(name); other != same_.end()) return in(other->second);
  const auto known = leaves_.find(name);
  if (known != leaves_.end()) return known->second;
  return leaves_[name] = leaves_of(tensor(name));
}

Array Given::constant(const std::string& name) const {
  return has(name) ? leaves_of(tensor(name)) : Array{};
}

std::vector<bool> Given::axes(int rank, const std::vector<int>& named) const {
  std::vector<bool> chosen(static_cast<std::size_t>(rank), named.empty());
  for (const int axis : named) chosen[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
  return chosen;
}

int Given::axis(int rank, int fallback) const {
  const int axis = attribute("axis", fallback);
  return axis < 0 ? axis + rank : axis;
}

RandomOps random_ops() {
  RandomOps all;
  for (RandomOps (*family)() :
       {pointwise_ops, binary_ops, reduce_ops, norm_ops, loss_ops, pair_loss_ops, similarity_ops, matmul_ops,
        conv_ops, pool_ops, image_ops, shape_ops, index_ops}) {
    for (RandomOp& op : family()) all.push_back(std::move(op));
  }
  return all;
}

}  // namespace athanor::random_ops
