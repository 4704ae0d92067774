#include "optim/load.h"

#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "optim/flat.h"

namespace athanor {
namespace {

bool same_runs(const ShardedTensor& a, const ShardedTensor& b) {
  if (a.shape != b.shape || a.dtype != b.dtype || a.runs.size() != b.runs.size()) return false;
  for (std::size_t i = 0; i < a.runs.size(); ++i) {
    if (a.runs[i].begin != b.runs[i].begin || a.runs[i].values.numel() != b.runs[i].values.numel())
      return false;
  }
  return true;
}

const ShardedTensor* sharded_in(const StateDict& state, const std::string& name) {
  const StateDict::Value* value = state.find(name);
  return value ? std::get_if<ShardedTensor>(value) : nullptr;
}

void check_tensor(const StateDict& source, const std::string& name, const Shape& shape, DType dtype,
                  const char* who) {
  const Tensor& from = source.tensor(name, shape);
  ATH_CHECK(from.dtype() == dtype && from.is_contiguous(), "{}: '{}' must be dense {}, but is {}{}", who,
            name, dtype, from.is_contiguous() ? "" : "strided ", from.dtype());
}

void copy_runs(const ShardedTensor& to, const StateDict& source, const std::string& name) {
  const ShardedTensor* alike = sharded_in(source, name);
  for (std::size_t i = 0; i < to.runs.size(); ++i) {
    const Tensor& values = to.runs[i].values;
    const Tensor from =
        alike ? alike->runs[i].values : slice_of(source.tensor(name), to.runs[i].begin, values.shape());
    values.copy_bytes_from(from.to(values.device()));
  }
}

}  // namespace

void load_tensors(const StateDict& target, const StateDict& source, const char* who) {
  check_tensors(target, source, who);
  copy_tensors(target, source);
}

void check_tensors(const StateDict& target, const StateDict& source, const char* who) {
  for (const StateDict::Entry& entry : target) {
    if (const auto* to = std::get_if<Tensor>(&entry.value)) {
      check_tensor(source, entry.name, to->shape(), to->dtype(), who);
    } else if (const auto* part = std::get_if<ShardedTensor>(&entry.value)) {
      if (!sharded_in(source, entry.name)) {
        check_tensor(source, entry.name, part->shape, part->dtype, who);
        continue;
      }
      ATH_CHECK(same_runs(*part, source.sharded(entry.name)),
                "{}: '{}' must be this rank's shard of {}, but is another shard", who, entry.name,
                part->shape);
    }
  }
  source.require_all_used(who);
}

void copy_tensors(const StateDict& target, const StateDict& source) {
  for (const StateDict::Entry& entry : target) {
    if (const auto* to = std::get_if<Tensor>(&entry.value)) {
      to->copy_bytes_from(source.tensor(entry.name).to(to->device()));
    } else if (const auto* part = std::get_if<ShardedTensor>(&entry.value)) {
      copy_runs(*part, source, entry.name);
    }
  }
}

StateDict clone_tensors(const StateDict& state) {
  const NoGrad no_grad;
  StateDict copy;
  for (const StateDict::Entry& entry : state) {
    if (const auto* tensor = std::get_if<Tensor>(&entry.value)) {
      copy.set(entry.name, clone(tensor->detach()));
    } else if (const auto* part = std::get_if<ShardedTensor>(&entry.value)) {
      ShardedTensor own = *part;
      for (ShardedTensor::Run& run : own.runs) run.values = clone(run.values);
      copy.set(entry.name, std::move(own));
    } else {
      copy.set(entry.name, entry.value);
    }
  }
  return copy;
}

}  // namespace athanor
