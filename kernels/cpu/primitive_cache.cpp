#include "kernels/cpu/primitive_cache.h"

#include <bit>
#include <list>
#include <unordered_map>
#include <utility>

#include "kernels/cpu/context.h"
#include "kernels/hash.h"
#include "kernels/impl.h"

namespace athanor::cpu {
namespace {

constexpr std::string_view kByRule = name_of(ConvImpl::automatic);
static_assert(kByRule == name_of(MatmulImpl::automatic));

struct KeyHash {
  std::size_t operator()(const PrimitiveKey& key) const {
    const auto& [activation, residual, accumulate, packed, sums, pooled] = key.fused;
    std::uint64_t hash = std::bit_cast<std::uintptr_t>(key.by);
    const auto add = [&](auto value) {
      hash = hash * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(value);
    };
    for (const std::int64_t size : key.sizes) add(size);
    add(static_cast<int>(key.op) << 16 | static_cast<int>(key.in) << 8 | static_cast<int>(key.out));
    add(static_cast<int>(activation));
    for (const bool flag : {key.bias, residual, accumulate, packed, sums, pooled}) add(flag);
    add(key.threads);
    return static_cast<std::size_t>(kernels::mix64(hash));
  }
};

class Loops final : public Primitive {
 public:
  using Run = void (*)(const CpuContext&, const PrimitiveKey&, const Operands&);

  Loops(const PrimitiveKey& key, Run function) : key_(key), run_(function) {}
  void run(const CpuContext& context, const Operands& operands) override { run_(context, key_, operands); }

 private:
  PrimitiveKey key_;
  Run run_;
};

/// `key` without what `one` leaves to the caller.
PrimitiveKey key_for(const Implementation& one, PrimitiveKey key) {
  const Fused asked = key.fused, can = one.fuses;
  key.by = &one;
  // The residual comes before the activation.
  const bool activates =
      (one.activations & set_of(asked.activation)) != 0 && (!asked.residual || can.residual);
  key.fused = {.activation = activates ? asked.activation : Activation::none,
               .residual = asked.residual && can.residual,
               .accumulate = asked.accumulate && can.accumulate,
               .packed = asked.packed && can.packed,
               .sums = asked.sums,
               .pooled = asked.pooled};
  const bool added_later = asked.accumulate && !can.accumulate;
  if (added_later && key.op == PrimitiveKey::Op::conv_backward_weights && is_half(key.out))
    key.out = DType::f32;
  return key;
}

}  // namespace

MadePrimitive made_of(const PrimitiveKey& key, Loops::Run run) {
  return {std::make_unique<Loops>(key, run), std::string(key.by->name)};
}

struct PrimitiveCache::Impl {
  struct Entry {
    PrimitiveKey key;
    std::unique_ptr<Primitive> primitive;
    std::string implementation;
  };
  std::list<Entry> entries;  // most recently used first
  std::unordered_map<PrimitiveKey, std::list<Entry>::iterator, KeyHash> index;
};

PrimitiveCache::PrimitiveCache() : impl_(std::make_unique<Impl>()) {}
PrimitiveCache::~PrimitiveCache() = default;

Primitive* PrimitiveCache::find(const PrimitiveKey& key) {
  auto& [entries, index] = *impl_;
  if (const auto found = index.find(key); found != index.end()) {
    entries.splice(entries.begin(), entries, found->second);
    return entries.front().primitive.get();
  }
  MadePrimitive made = key.by->make(key);
  if (entries.size() == kCapacity) {
    index.erase(entries.back().key);
    entries.pop_back();
  }
  entries.push_front({key, std::move(made.primitive), std::move(made.implementation)});
  index.emplace(key, entries.begin());
  return entries.front().primitive.get();
}

std::vector<PrimitiveInfo> PrimitiveCache::contents() const {
  std::vector<PrimitiveInfo> infos;
  for (const Impl::Entry& entry : impl_->entries) infos.push_back({entry.key, entry.implementation});
  return infos;
}

Code find_code(CpuContext& context, std::span<const ListEntry> list, const PrimitiveKey& key,
               std::string_view name) {
  const bool by_rule = name == kByRule;
  for (const auto& [one, prefers] : list) {
    if (!by_rule && one->name != name) continue;
    if ((key.fused.sums && !one->fuses.sums) || (key.fused.pooled && !one->fuses.pooled)) continue;
    const PrimitiveKey own = key_for(*one, key);
    if (!one->fits(own) || (by_rule && prefers && !prefers(own))) continue;
    if (Primitive* const primitive = context.primitives().find(own))
      return {primitive, one, own.fused, own.out};
  }
  return {};
}

}  // namespace athanor::cpu
