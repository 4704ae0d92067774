#include "optim/plan.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "optim/flat.h"

namespace athanor {

using kernels::kUpdateChunk;
using kernels::UpdateRange;
using kernels::UpdateTable;

namespace {

std::vector<UpdatePlan::Member> everything(const ParameterArena& arena) {
  std::vector<UpdatePlan::Member> members;
  for (int i = 0; i < arena.size(); ++i) members.push_back({.parameter = i});
  return members;
}

}  // namespace

UpdatePlan::UpdatePlan(const ParameterArena& arena) : UpdatePlan(arena, everything(arena)) {}

UpdatePlan::UpdatePlan(const ParameterArena& arena, std::vector<Member> members)
    : arena_(arena),
      members_(std::move(members)),
      order_(members_.size()),
      active_(members_.size()),
      first_range_(members_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
  const AllocTag named("optimizer");
  std::vector<std::int64_t> most(arena.parts().size());
  for (const Member& member : members_) {
    const ParameterArena::Slice& slice = arena.slice(member.parameter);
    most[static_cast<std::size_t>(slice.part)] +=
        std::max<std::int64_t>(1, (slice.count + kUpdateChunk - 1) / kUpdateChunk);
  }
  for (std::size_t part = 0; part < most.size(); ++part) {
    const auto bytes = most[part] * static_cast<std::int64_t>(sizeof(UpdateRange));
    staging_.push_back(Tensor::empty({bytes}, {DType::u8, kCpu}));
    const ParameterArena::Part& flat = arena.parts()[part];
    UpdateTable& table = tables_.emplace_back();
    table.gradients = flat.gradients;
    if (flat.dtype != DType::f32) table.weights = flat.weights;
    table.masters = flat.masters;
    table.ranges =
        arena.device().is_cpu() ? staging_.back() : Tensor::empty({bytes}, {DType::u8, arena.device()});
  }
  steps_ = make_flat(static_cast<std::int64_t>(members_.size()), DType::i64, arena.device());
  for (UpdateTable& table : tables_) table.steps = steps_;
}

void UpdatePlan::arrange(std::vector<int> order) {
  order_ = std::move(order);
  built_ = false;
}

void UpdatePlan::set_averages(std::span<const Tensor> averages, const kernels::AverageRule& rule) {
  for (std::size_t part = 0; part < tables_.size(); ++part) {
    tables_[part].averages = averages.empty() ? Tensor() : averages[part];
    tables_[part].average = rule;
  }
}

std::span<const UpdateTable> UpdatePlan::refresh() {
  return refresh_by([&](int parameter) { return arena_.has_gradient(parameter); });
}
std::span<const UpdateTable> UpdatePlan::refresh(std::span<const char> marked) {
  return refresh_by([&](int parameter) { return marked[static_cast<std::size_t>(parameter)] != 0; });
}

template <class F> std::span<const UpdateTable> UpdatePlan::refresh_by(const F& is_active) {
  bool changed = !std::exchange(built_, true);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const char active = is_active(members_[i].parameter);
    changed = std::exchange(active_[i], active) != active || changed;
  }
  if (changed) rebuild();
  return tables_;
}

void UpdatePlan::rebuild() {
  for (UpdateTable& table : tables_) table.count = table.elements = 0;
  for (const int next : order_) {
    const auto i = static_cast<std::size_t>(next);
    if (!active_[i]) continue;
    const Member& member = members_[i];
    const ParameterArena::Slice& slice = arena_.slice(member.parameter);
    const auto part = static_cast<std::size_t>(slice.part);
    UpdateTable& table = tables_[part];
    auto* ranges = reinterpret_cast<UpdateRange*>(staging_[part].raw_data());
    first_range_[i] = table.count;
    std::int64_t state = member.state;
    UpdateRange* newest = nullptr;
    const auto add_range = [&](const UpdateRange& wanted) {
      UpdateRange range = wanted;
      range.start = table.elements;
      range.state = state;
      range.member = static_cast<std::int32_t>(i);
      range.group = static_cast<std::int16_t>(member.group);
      range.decay = member.decay;
      newest = &(ranges[table.count++] = range);
      table.elements += range.count;
      state += range.count;
    };
    const auto add = [&](const ParameterArena::Run& run) {
      for (std::int64_t at = 0; at < run.count; at += kUpdateChunk) {
        UpdateRange range{};
        range.count = std::min(kUpdateChunk, run.count - at);
        range.gradients = range.weights = slice.begin + run.begin + at;
        range.masters = run.masters + at;
        range.averages = run.kept + at;
        add_range(range);
      }
    };
    arena_.for_each_owned(member.parameter, add);
    // A parameter updated by another rank is counted here too, so that all ranks save the same count.
    if (!newest && slice.count > 0) add_range({});
    if (newest) newest->last = true;
  }
  for (std::size_t part = 0; part < tables_.size(); ++part) {
    if (!arena_.device().is_cpu()) tables_[part].ranges.copy_bytes_from(staging_[part]);
  }
}

UpdateTable UpdatePlan::table_of(int member, std::int64_t count) const {
  const auto index = static_cast<std::size_t>(member);
  const ParameterArena::Slice& slice = arena_.slice(members_[index].parameter);
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(UpdateRange));
  UpdateTable table = tables_[static_cast<std::size_t>(slice.part)];
  const std::int64_t elements = arena_.owned_elements(members_[index].parameter);
  table.count = count * std::max<std::int64_t>(1, (elements + kUpdateChunk - 1) / kUpdateChunk);
  table.elements = count * elements;
  table.ranges = slice_of(table.ranges, first_range_[index] * kBytes, {table.count * kBytes});
  return table;
}

}  // namespace athanor
