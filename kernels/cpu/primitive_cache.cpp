#include "kernels/cpu/primitive_cache.h"

#include <list>
#include <unordered_map>
#include <utility>

#include "kernels/cpu/conv_few_pixels.h"
#include "kernels/cpu/conv_pool.h"
#include "kernels/cpu/conv_winograd.h"
#include "kernels/cpu/onednn.h"
#include "kernels/hash.h"

namespace athanor::cpu {
namespace {

struct KeyHash {
  std::size_t operator()(const PrimitiveKey& key) const {
    kernels::HashOf hash;
    hash.add(key.op, key.in, key.out, key.bias, key.accumulate, key.winograd, key.pooled, key.few_pixels,
             key.packed, key.residual, key.activation, key.threads);
    for (const std::int64_t size : key.sizes) hash.add(size);
    return static_cast<std::size_t>(hash.value());
  }
};

}  // namespace

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
  MadePrimitive made = key.winograd     ? make_winograd(key)
                       : key.pooled     ? make_conv_pool(key)
                       : key.few_pixels ? make_conv_few_pixels(key)
                                        : make_onednn(key);
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

}  // namespace athanor::cpu
