#include "optim/shards.h"

#include <algorithm>
#include <tuple>

#include "tensor/base/error.h"

namespace athanor {

Shards::Shards(const ArenaLayout& layout, const ArenaOptions& options)
    : layout_(layout), sharded_(static_cast<bool>(options.keep)), sizes_(layout.parts.size()) {
  std::vector<ArenaRange> ranges;
  if (sharded_) {
    ranges = options.keep(layout);
  } else {
    for (std::size_t part = 0; part < layout.parts.size(); ++part)
      ranges.push_back({static_cast<int>(part), 0, layout.parts[part].size});
  }
  std::sort(ranges.begin(), ranges.end(), [](const ArenaRange& a, const ArenaRange& b) {
    return std::tie(a.part, a.begin, a.end) < std::tie(b.part, b.begin, b.end);
  });
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const ArenaRange& range = ranges[i];
    const auto part = static_cast<std::size_t>(range.part);
    ATH_CHECK(part < layout.parts.size() && range.begin >= 0 && range.begin <= range.end &&
                  range.end <= layout.parts[part].size &&
                  (i == 0 || ranges[i - 1].part < range.part || ranges[i - 1].end <= range.begin),
              "arena: ranges to keep must lie in the arena without overlap, but one is [{}, {}) of part {}",
              range.begin, range.end, range.part);
    const std::int64_t local = sizes_[part];
    owned_.push_back({range, layout.parts[part].dtype == DType::f32 ? range.begin : local, local});
    sizes_[part] += range.count();
  }
}

std::int64_t Shards::elements(int parameter) const {
  std::int64_t total = 0;
  for_each_run(parameter, [&](const Run& run) { total += run.count; });
  return total;
}

}  // namespace athanor
