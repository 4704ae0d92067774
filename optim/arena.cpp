#include "optim/arena.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "autograd/engine.h"
#include "kernels/copy.h"
#include "kernels/hash.h"
#include "kernels/on_device.h"
#include "kernels/update.h"
#include "optim/flat.h"
#include "optim/load.h"
#include "optim/step.h"

namespace athanor {
namespace {

// Drops repeated entries of one logical tensor, and checks the rest.
template <class Named> void take_once(std::vector<Named>& entries, const char* kind) {
  std::vector<Named> once;
  once.reserve(entries.size());
  for (Named& entry : entries) {
    ATH_CHECK(entry.tensor.defined(), "arena: {} {} must be defined", kind, entry.name);
    ATH_CHECK(entry.tensor.dtype() == DType::f32,
              "arena: {} {} must be f32 when the arena takes it over, but is {}", kind, entry.name,
              entry.tensor.dtype());
    ATH_CHECK(entry.tensor.is_contiguous(), "arena: {} {} must be dense", kind, entry.name);
    const bool tied = std::any_of(once.begin(), once.end(),
                                  [&](const Named& other) { return other.tensor.same_as(entry.tensor); });
    if (!tied) once.push_back(std::move(entry));
  }
  entries = std::move(once);
}

// Two handles to the same memory would diverge once each has its own slice.
void check_apart(std::span<const Parameter> parameters, std::span<const NamedTensor> buffers) {
  struct Range {
    const std::byte *begin, *end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  const auto add = [&](const Tensor& t, const std::string& name) {
    if (t.numel() > 0) ranges.push_back({t.raw_data(), t.raw_data() + t.bytes(), &name});
  };
  for (const Parameter& p : parameters) add(p.tensor, p.name);
  for (const NamedTensor& b : buffers) add(b.tensor, b.name);
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    ATH_CHECK(ranges[i].begin >= ranges[i - 1].end,
              "arena: two tensors must be identical or disjoint, but {} and {} overlap in memory",
              *ranges[i - 1].name, *ranges[i].name);
  }
}

}  // namespace

ParameterArena::ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                               Precision precision, Device device)
    : ParameterArena(std::move(parameters), std::move(buffers),
                     ArenaOptions{.precision = precision, .device = device}) {}

ParameterArena::ParameterArena(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                               const ArenaOptions& options)
    : options_(options), parameters_(std::move(parameters)), buffers_(std::move(buffers)) {
  ATH_CHECK(options.shards >= 1, "arena: shards must be at least 1, but got {}", options.shards);
  take_once(parameters_, "parameter");
  take_once(buffers_, "buffer");
  check_apart(parameters_, buffers_);
  lay_out();
  choose_owned();
  take_over_weights();
  take_over_buffers();
}

// Layout ---------------------------------------------------------------------------------------------------

// One part per compute dtype, in order of first occurrence.
void ParameterArena::make_parts() {
  const DType compute = compute_dtype(options_.precision);
  slices_.resize(parameters_.size());
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const DType dtype = parameters_[i].keep_f32 ? DType::f32 : compute;
    const auto at =
        std::find_if(parts_.begin(), parts_.end(), [&](const Part& p) { return p.dtype == dtype; });
    slices_[i].part = static_cast<int>(at - parts_.begin());
    if (at == parts_.end()) parts_.emplace_back().dtype = dtype;
  }
}

// Which parameters of a part begin a bucket. Buckets are filled from the back.
std::vector<bool> ParameterArena::bucket_begins(int part) const {
  const std::size_t gradient = size_of(gradient_dtype(part));
  std::vector<bool> begins(parameters_.size());
  std::size_t held = 0, first = parameters_.size();
  std::size_t cap = options_.first_bucket_bytes > 0 ? options_.first_bucket_bytes : options_.bucket_bytes;
  for (std::size_t i = parameters_.size(); i-- > 0;) {
    if (slices_[i].part != part) continue;
    const std::size_t bytes = static_cast<std::size_t>(parameters_[i].tensor.numel()) * gradient;
    if (options_.bucket_bytes > 0 && held > 0 && held + bytes > cap) {
      begins[first] = true;
      held = 0;
      cap = options_.bucket_bytes;
    }
    first = i;
    held += bytes;
  }
  begins[first] = true;
  return begins;
}

void ParameterArena::lay_out() {
  make_parts();
  struct Ordered {
    Bucket bucket;
    std::size_t first;  // its gradients are complete when this parameter's is
  };
  std::vector<Ordered> ordered;
  for (int part = 0; part < static_cast<int>(parts_.size()); ++part) {
    Part& flat = parts_[static_cast<std::size_t>(part)];
    const auto align = static_cast<std::int64_t>(kSliceAlignment / size_of(flat.dtype));
    const std::vector<bool> begins = bucket_begins(part);
    std::int64_t at = 0, bucket_begin = 0;
    std::size_t first = 0;
    const auto close_bucket = [&] {
      at = bucket_begin + align_elements(at - bucket_begin, align * options_.shards);
      if (at > bucket_begin) ordered.push_back({{part, bucket_begin, at}, first});
      bucket_begin = at;
    };
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      if (slices_[i].part != part) continue;
      if (begins[i]) {
        close_bucket();
        first = i;
      }
      const std::int64_t count = parameters_[i].tensor.numel();
      slices_[i] = {part, at, count};
      at = align_elements(at + count, align);
      numel_ += count;
    }
    close_bucket();
    flat.size = at;
  }
  std::sort(ordered.begin(), ordered.end(),
            [](const Ordered& a, const Ordered& b) { return a.first > b.first; });
  for (const Ordered& entry : ordered) buckets_.push_back(entry.bucket);
}

void ParameterArena::check_whole(const char* op) const {
  ATH_CHECK(!sharded_,
            "{}: needs the master weights of all parameters, but this rank holds only those of its shard",
            op);
}

void ParameterArena::choose_owned() {
  std::vector<ArenaRange> ranges;
  sharded_ = static_cast<bool>(options_.keep);
  if (sharded_) {
    ranges = options_.keep(*this);
    options_.keep = nullptr;  // its captures need not outlive the constructor
  } else {
    for (std::size_t part = 0; part < parts_.size(); ++part)
      ranges.push_back({static_cast<int>(part), 0, parts_[part].size});
  }
  std::sort(ranges.begin(), ranges.end(), [](const ArenaRange& a, const ArenaRange& b) {
    return std::tie(a.part, a.begin, a.end) < std::tie(b.part, b.begin, b.end);
  });
  kept_.resize(parts_.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const ArenaRange& range = ranges[i];
    const auto part = static_cast<std::size_t>(range.part);
    ATH_CHECK(part < parts_.size() && range.begin >= 0 && range.begin <= range.end &&
                  range.end <= parts_[part].size &&
                  (i == 0 || ranges[i - 1].part < range.part || ranges[i - 1].end <= range.begin),
              "arena: ranges to keep must lie in the arena without overlap, but one is [{}, {}) of part {}",
              range.begin, range.end, range.part);
    const std::int64_t kept = kept_[part];
    owned_.push_back({range, parts_[part].dtype == DType::f32 ? range.begin : kept, kept});
    kept_[part] += range.end - range.begin;
  }
}

std::int64_t ParameterArena::owned_elements(int parameter) const {
  std::int64_t total = 0;
  for_each_owned(parameter, [&](const Run& run) { total += run.count; });
  return total;
}

Tensor ParameterArena::view(Tensor Part::*flat, int parameter) const {
  const Slice& at = slice(parameter);
  return slice_of(parts_[static_cast<std::size_t>(at.part)].*flat, at.begin,
                  parameters_[static_cast<std::size_t>(parameter)].tensor.shape());
}

// Taking over ----------------------------------------------------------------------------------------------

// Gradients are allocated last, after the parameters' old memory has been freed.
void ParameterArena::take_over_weights() {
  const auto make = [&](const char* tag, std::int64_t size, DType dtype) {
    const AllocTag named(tag);
    return make_flat(size, dtype, device());
  };
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    Part& part = parts_[i];
    part.weights = make("weights", part.size, part.dtype);
    part.masters = part.dtype == DType::f32 ? part.weights : make("masters", kept_[i], DType::f32);
  }
  for (int i = 0; i < size(); ++i) {
    const Tensor& handle = parameters_[static_cast<std::size_t>(i)].tensor;
    const Slice& at = slice(i);
    const Part& part = parts_[static_cast<std::size_t>(at.part)];
    {
      const Tensor values = handle.detach().to(device()), weights = view(&Part::weights, i);
      on_device(device(), [&](auto& context) { kernels::copy(context, values, weights); });
      for_each_owned(i, [&](const Run& run) {
        const Shape shape{run.count};
        slice_of(part.masters, run.masters, shape).copy_bytes_from(slice_of(values, run.begin, shape));
      });
    }
    handle.rebind(part.weights.storage(), part.weights.offset() + at.begin, part.dtype);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i)
    parts_[i].gradients = make("gradients", parts_[i].size, gradient_dtype(static_cast<int>(i)));
  for (int i = 0; i < size(); ++i) {  // also if another arena had them before
    const Tensor& handle = parameters_[static_cast<std::size_t>(i)].tensor;
    if (handle.requires_grad()) leaf_of(handle).bind(gradient(i));
  }
  bump_weights();
  zero_grad();
}

void ParameterArena::take_over_buffers() {
  constexpr auto kAlign = static_cast<std::int64_t>(kSliceAlignment / sizeof(float));
  std::int64_t size = 0;
  for (const NamedTensor& buffer : buffers_) size += align_elements(buffer.tensor.numel(), kAlign);
  if (size == 0) return;
  const AllocTag named("buffers");
  flat_buffers_ = make_flat(size, DType::f32, device());
  std::int64_t at = 0;
  for (const NamedTensor& buffer : buffers_) {
    const Tensor& handle = buffer.tensor;
    slice_of(flat_buffers_, at, handle.shape()).copy_bytes_from(handle.detach().to(device()));
    handle.rebind(flat_buffers_.storage(), flat_buffers_.offset() + at, DType::f32);
    at = align_elements(at + handle.numel(), kAlign);
  }
}

void ParameterArena::weights_from_masters() {
  for (const Owned& range : owned_) {
    const Part& part = parts_[static_cast<std::size_t>(range.part)];
    if (part.dtype == DType::f32) continue;
    const Shape shape{range.count()};
    const Tensor masters = slice_of(part.masters, range.masters, shape),
                 weights = slice_of(part.weights, range.begin, shape);
    on_device(device(), [&](auto& context) { kernels::copy(context, masters, weights); });
  }
  updated();
}

void ParameterArena::bump_weights() const {
  for (const Parameter& parameter : parameters_) parameter.tensor.bump_version();
}
void ParameterArena::bump_buffers() const {
  for (const NamedTensor& buffer : buffers_) buffer.tensor.bump_version();
}

// Gradients ------------------------------------------------------------------------------------------------

void ParameterArena::zero_grad() {
  ++zeroed_;
  for (int i = 0; i < size(); ++i) {
    const Tensor& handle = parameters_[static_cast<std::size_t>(i)].tensor;
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
  const Parameter& entry = parameters_[static_cast<std::size_t>(parameter)];
  if (!entry.tensor.requires_grad()) return false;
  const Leaf& leaf = leaf_of(entry.tensor);
  const Tensor gradient = leaf.grad();
  ATH_CHECK(leaf.bound() || !gradient.defined(),
            "arena: the gradient of {} must lie in the arena, but backward() wrote it elsewhere; after "
            "require_grad(), call zero_grad() before backward()",
            entry.name);
  return gradient.defined();
}

// Buffers --------------------------------------------------------------------------------------------------

void ParameterArena::snapshot_buffers() {
  if (!flat_buffers_.defined()) return;
  if (!snapshot_.defined()) {
    const AllocTag named("buffers");
    snapshot_ = make_flat(flat_buffers_.numel(), DType::f32, device());
  }
  snapshot_.copy_bytes_from(flat_buffers_);
}

void ParameterArena::restore_buffers() {
  if (!flat_buffers_.defined()) return;
  ATH_CHECK(snapshot_.defined(), "arena: snapshot_buffers() must be called before restore_buffers()");
  flat_buffers_.copy_bytes_from(snapshot_);
  bump_buffers();
}

void ParameterArena::restore_buffers_if_skipped(StepBuffer& step) {
  if (!flat_buffers_.defined()) return;
  ATH_CHECK(snapshot_.defined(),
            "arena: snapshot_buffers() must be called before restore_buffers_if_skipped()");
  on_device(device(), [&](auto& context) {
    const BoundStep bound(context, step);
    kernels::copy_if_skipped(context, snapshot_, flat_buffers_);
  });
  bump_buffers();
}

// State ----------------------------------------------------------------------------------------------------

StateDict ParameterArena::state_dict() const {
  StateDict state;
  for (int i = 0; i < size(); ++i) {
    const Tensor& masters = parts_[static_cast<std::size_t>(slice(i).part)].masters;
    state.set(parameters_[static_cast<std::size_t>(i)].name,
              state_of(i, masters, [](const Run& run) { return run.masters; }));
  }
  for (const NamedTensor& buffer : buffers_) state.set(buffer.name, buffer.tensor);
  return state;
}

void ParameterArena::load_state_dict(const StateDict& state) {
  load_tensors(state_dict(), state, "arena");
  weights_from_masters();
  bump_buffers();
}

// Hash -----------------------------------------------------------------------------------------------------

std::uint64_t ParameterArena::weights_hash() const {
  check_whole("weights_hash");
  return hash_of(owned_hash());
}

std::uint64_t ParameterArena::hash_of(std::uint64_t sum) const {
  return kernels::mix64(sum + static_cast<std::uint64_t>(numel_));
}

std::uint64_t ParameterArena::owned_hash() const {
  std::uint64_t sum = 0, first = 0;
  for (int i = 0; i < size(); ++i) {
    const Tensor& masters = parts_[static_cast<std::size_t>(slice(i).part)].masters;
    for_each_owned(i, [&](const Run& run) {
      const Tensor values = slice_of(masters, run.masters, {run.count});
      sum += on_device(device(), [&](auto& context) {
        return kernels::hash_elements(context, values, first + static_cast<std::uint64_t>(run.begin));
      });
    });
    first += static_cast<std::uint64_t>(slice(i).count);
  }
  return sum;
}

}  // namespace athanor
