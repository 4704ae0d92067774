#include "optim/layout.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "optim/flat.h"

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

// Makes the parts, and tells each parameter its own.
void make_parts(ArenaLayout& layout, const ArenaOptions& options) {
  const DType compute = compute_dtype(options.precision);
  for (const Parameter& parameter : layout.parameters) {
    const DType dtype = parameter.keep_f32 ? DType::f32 : compute;
    const auto at = std::find_if(layout.parts.begin(), layout.parts.end(),
                                 [&](const ArenaLayout::Part& part) { return part.dtype == dtype; });
    layout.slices.push_back({static_cast<int>(at - layout.parts.begin()), 0, parameter.tensor.numel()});
    if (at == layout.parts.end()) layout.parts.push_back({dtype, options.f32_gradients ? DType::f32 : dtype});
  }
}

// Which parameters of a part begin a bucket. Buckets are filled from the back.
std::vector<bool> bucket_begins(const ArenaLayout& layout, int part, const ArenaOptions& options) {
  const std::size_t gradient = size_of(layout.parts[static_cast<std::size_t>(part)].gradient_dtype);
  const std::size_t parameters = layout.parameters.size();
  std::vector<bool> begins(parameters);
  std::size_t held = 0, first = parameters;
  std::size_t cap = options.first_bucket_bytes > 0 ? options.first_bucket_bytes : options.bucket_bytes;
  for (std::size_t i = parameters; i-- > 0;) {
    if (layout.slices[i].part != part) continue;
    const std::size_t bytes = static_cast<std::size_t>(layout.slices[i].count) * gradient;
    if (options.bucket_bytes > 0 && held > 0 && held + bytes > cap) {
      begins[first] = true;
      held = 0;
      cap = options.bucket_bytes;
    }
    first = i;
    held += bytes;
  }
  begins[first] = true;
  return begins;
}

struct OrderedBucket {
  ArenaRange bucket;
  std::size_t first;  // its gradients are complete when this parameter's is
};

void lay_out_part(ArenaLayout& layout, int index, const ArenaOptions& options,
                  std::vector<OrderedBucket>& buckets) {
  ArenaLayout::Part& part = layout.parts[static_cast<std::size_t>(index)];
  const auto align = static_cast<std::int64_t>(kSliceAlignment / size_of(part.dtype));
  const std::vector<bool> begins = bucket_begins(layout, index, options);
  std::int64_t at = 0, bucket_begin = 0;
  std::size_t first = 0;
  const auto close_bucket = [&] {
    at = bucket_begin + align_elements(at - bucket_begin, align * options.shards);
    if (at > bucket_begin) buckets.push_back({{index, bucket_begin, at}, first});
    bucket_begin = at;
  };
  for (std::size_t i = 0; i < layout.slices.size(); ++i) {
    ArenaLayout::Slice& slice = layout.slices[i];
    if (slice.part != index) continue;
    if (begins[i]) {
      close_bucket();
      first = i;
    }
    slice.begin = at;
    at = align_elements(at + slice.count, align);
    layout.numel += slice.count;
  }
  close_bucket();
  part.size = at;
}

}  // namespace

ArenaLayout lay_out(std::vector<Parameter> parameters, std::vector<NamedTensor> buffers,
                    const ArenaOptions& options) {
  ATH_CHECK(options.shards >= 1, "arena: shards must be at least 1, but got {}", options.shards);
  take_once(parameters, "parameter");
  take_once(buffers, "buffer");
  check_apart(parameters, buffers);
  ArenaLayout layout;
  layout.parameters = std::move(parameters);
  layout.buffers = std::move(buffers);
  layout.shards = options.shards;
  layout.whole_parameters = options.whole_parameters;
  make_parts(layout, options);
  std::vector<OrderedBucket> buckets;
  for (std::size_t part = 0; part < layout.parts.size(); ++part)
    lay_out_part(layout, static_cast<int>(part), options, buckets);
  std::sort(buckets.begin(), buckets.end(),
            [](const OrderedBucket& a, const OrderedBucket& b) { return a.first > b.first; });
  for (const OrderedBucket& entry : buckets) layout.buckets.push_back(entry.bucket);
  return layout;
}

}  // namespace athanor
