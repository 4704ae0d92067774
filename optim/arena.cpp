// Explained in docs/half_the_bits.md.
#include "optim/arena.h"

#include <utility>

#include "autograd/engine.h"
#include "kernels/copy.h"
#include "kernels/hash.h"
#include "kernels/on_device.h"
#include "optim/flat.h"
#include "optim/load.h"

namespace athanor {
namespace {

void check_whole(const char* op, const Shards& shards) {
  ATH_CHECK(!shards.sharded(),
            "{}: needs the master weights of all parameters, but this rank holds only those of its shard",
            op);
}

}  // namespace

ParameterArena::ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                               const ArenaOptions& options)
    : layout_(lay_out(std::move(parameters), std::move(buffers), options)),
      device_(options.device),
      shards_(layout_, options) {
  take_over_weights();
  buffers_ = FlatBuffers(layout_.buffers, device_);
}

Tensor ParameterArena::view(Tensor Part::*flat, int parameter) const {
  const ArenaLayout::Slice& at = slice(parameter);
  return slice_of(parts_[static_cast<std::size_t>(at.part)].*flat, at.begin,
                  parameters()[static_cast<std::size_t>(parameter)].tensor.shape());
}

Tensor ParameterArena::master(int parameter) const {
  check_whole("master", shards_);
  return view(&Part::masters, parameter);
}

// Gradients are allocated last, after the parameters' old memory has been freed.
void ParameterArena::take_over_weights() {
  const auto make = [&](const char* tag, std::int64_t size, DType dtype) {
    const AllocTag named(tag);
    return make_flat(size, dtype, device_);
  };
  for (const ArenaLayout::Part& layout : layout_.parts) {
    const int index = static_cast<int>(parts_.size());
    Part& part = parts_.emplace_back(Part{layout, {}, {}, {}});
    part.weights = make("weights", part.size, part.dtype);
    part.masters = part.dtype == DType::f32 ? part.weights : make("masters", shards_.size(index), DType::f32);
  }
  for (int i = 0; i < size(); ++i) {
    const Tensor& handle = parameters()[static_cast<std::size_t>(i)].tensor;
    const ArenaLayout::Slice& at = slice(i);
    const Part& part = parts_[static_cast<std::size_t>(at.part)];
    {
      const Tensor values = handle.detach().to(device_), weights = view(&Part::weights, i);
      on_device(device_, [&](auto& context) { kernels::copy(context, values, weights); });
      shards_.for_each_run(i, [&](const Shards::Run& run) {
        const Shape shape{run.count};
        slice_of(part.masters, run.masters, shape).copy_bytes_from(slice_of(values, run.begin, shape));
      });
    }
    handle.rebind(part.weights.storage(), part.weights.offset() + at.begin, part.dtype);
  }
  for (Part& part : parts_) part.gradients = make("gradients", part.size, part.gradient_dtype);
  for (int i = 0; i < size(); ++i) {  // also if another arena had them before
    const Tensor& handle = parameters()[static_cast<std::size_t>(i)].tensor;
    if (handle.requires_grad()) leaf_of(handle).bind(gradient(i));
  }
  bump_weights();
  zero_grad();
}

void ParameterArena::weights_from_masters() {
  for (const Shards::Owned& range : shards_.owned()) {
    const Part& part = parts_[static_cast<std::size_t>(range.part)];
    if (part.dtype == DType::f32) continue;
    const Shape shape{range.count()};
    const Tensor masters = slice_of(part.masters, range.masters, shape),
                 weights = slice_of(part.weights, range.begin, shape);
    on_device(device_, [&](auto& context) { kernels::copy(context, masters, weights); });
  }
  updated();
}

void ParameterArena::bump_weights() const {
  for (const Parameter& parameter : parameters()) parameter.tensor.bump_version();
}

// Gradients ------------------------------------------------------------------------------------------------

void ParameterArena::zero_grad() {
  ++zeroed_;
  for (int i = 0; i < size(); ++i) {
    const Tensor& handle = parameters()[static_cast<std::size_t>(i)].tensor;
    if (!handle.requires_grad()) continue;
    Leaf& leaf = leaf_of(handle);
    if (leaf.bound()) {
      leaf.zero();
    } else {
      leaf.bind(gradient(i));
    }
  }
}

bool ParameterArena::has_gradient(int parameter) const {
  const Parameter& entry = parameters()[static_cast<std::size_t>(parameter)];
  if (!entry.tensor.requires_grad()) return false;
  const Leaf& leaf = leaf_of(entry.tensor);
  const Tensor gradient = leaf.grad();
  ATH_CHECK(leaf.bound() || !gradient.defined(),
            "arena: the gradient of {} must lie in the arena, but backward() wrote it elsewhere; after "
            "require_grad(), call zero_grad() before backward()",
            entry.name);
  return gradient.defined();
}

// State ----------------------------------------------------------------------------------------------------

StateDict ParameterArena::state_dict() const {
  StateDict state;
  for (int i = 0; i < size(); ++i) {
    const Tensor& masters = parts_[static_cast<std::size_t>(slice(i).part)].masters;
    state.set(parameters()[static_cast<std::size_t>(i)].name,
              shards_.state_of(i, masters, [](const Shards::Run& run) { return run.masters; }));
  }
  for (const NamedTensor& buffer : layout_.buffers) state.set(buffer.name, buffer.tensor);
  return state;
}

void ParameterArena::load_state_dict(const StateDict& state) {
  load_tensors(state_dict(), state, "arena");
  weights_from_masters();
  buffers_.bump();
}

// Hash -----------------------------------------------------------------------------------------------------

std::uint64_t ParameterArena::weights_hash() const {
  check_whole("weights_hash", shards_);
  return hash_of(owned_hash());
}

std::uint64_t ParameterArena::hash_of(std::uint64_t sum) const {
  return kernels::mix64(sum + static_cast<std::uint64_t>(numel()));
}

std::uint64_t ParameterArena::owned_hash() const {
  std::uint64_t sum = 0, first = 0;
  for (int i = 0; i < size(); ++i) {
    const Tensor& masters = parts_[static_cast<std::size_t>(slice(i).part)].masters;
    shards_.for_each_run(i, [&](const Shards::Run& run) {
      const Tensor values = slice_of(masters, run.masters, {run.count});
      sum += on_device(device_, [&](auto& context) {
        return kernels::hash_elements(context, values, first + static_cast<std::uint64_t>(run.begin));
      });
    });
    first += static_cast<std::uint64_t>(slice(i).count);
  }
  return sum;
}

}  // namespace athanor
