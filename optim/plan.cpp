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
    const ArenaLayout::Slice& slice = arena.slice(member.parameter);
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

void UpdatePlan::fuse(std::shared_ptr<FusedAverages> averages) {
  averages_ = std::move(averages);
  set_averages(averages_->values, averages_->rule);
}

std::span<const UpdateTable> UpdatePlan::refresh() {
  if (averages_ && !fused()) {
    averages_.reset();
    set_averages({}, {});
  }
  refresh_by([&](int parameter) { return arena_.has_gradient(parameter); });
  for (std::size_t i = 0; averages_ && i < members_.size(); ++i)
    averages_->moved[static_cast<std::size_t>(members_[i].parameter)] += active_[i];
  return tables_;
}

std::span<const UpdateTable> UpdatePlan::refresh_unmoved(const FusedAverages& averages) {
  set_averages(averages.values, averages.rule);
  return refresh_by([&](int parameter) { return averages.moved[static_cast<std::size_t>(parameter)] == 0; });
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
    const ArenaLayout::Slice& slice = arena_.slice(member.parameter);
    const auto part = static_cast<std::size_t>(slice.part);
    UpdateTable& table = tables_[part];
    auto* ranges = reinterpret_cast<UpdateRange*>(staging_[part].raw_data());
    first_range_[i] = table.count;
    std::int64_t state = member.state;
    UpdateRange* newest = nullptr;
    const auto add = [&](const Shards::Run& run, std::int64_t at, std::int64_t count) {
      const std::int64_t offset = slice.begin + run.begin + at;
      newest = &(ranges[table.count++] = {.start = table.elements,
                                          .gradients = offset,
                                          .weights = offset,
                                          .masters = run.masters + at,
                                          .averages = run.local + at,
                                          .state = state,
                                          .count = static_cast<std::int32_t>(count),
                                          .lr_scale = member.lr_scale,
                                          .member = static_cast<std::int32_t>(i),
                                          .group = static_cast<std::int16_t>(member.group),
                                          .decay = member.decay,
                                          .last = false});
      table.elements += count;
      state += count;
    };
    arena_.shards().for_each_run(member.parameter, [&](const Shards::Run& run) {
      for (std::int64_t at = 0; at < run.count; at += kUpdateChunk)
        add(run, at, std::min(kUpdateChunk, run.count - at));
    });
    // A parameter updated by another rank is counted here too, so that all ranks save the same count.
    if (!newest && slice.count > 0) add({}, 0, 0);
    if (newest) newest->last = true;
  }
  for (std::size_t part = 0; part < tables_.size(); ++part) {
    if (!arena_.device().is_cpu()) tables_[part].ranges.copy_bytes_from(staging_[part]);
  }
}

UpdateTable UpdatePlan::table_of(int member, std::int64_t count) const {
  const auto index = static_cast<std::size_t>(member);
  const ArenaLayout::Slice& slice = arena_.slice(members_[index].parameter);
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(UpdateRange));
  UpdateTable table = tables_[static_cast<std::size_t>(slice.part)];
  const std::int64_t elements = arena_.shards().elements(members_[index].parameter);
  table.count = count * std::max<std::int64_t>(1, (elements + kUpdateChunk - 1) / kUpdateChunk);
  table.elements = count * elements;
  table.ranges = slice_of(table.ranges, first_range_[index] * kBytes, {table.count * kBytes});
  return table;
}

}  // namespace athanor
