#include "data/detail/duplicates.h"

#include <functional>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "data/defects.h"
#include "data/detail/sample_id.h"
#include "data/detail/thread_scratch.h"
#include "data/formats/detail/bytes.h"

namespace athanor::detail {
namespace {

/// Of each image, what must be equal in two that are the same, or nothing.
using Keys = std::vector<std::optional<std::uint64_t>>;

/// `key_of(i)` of each image, by several threads; nothing for those that cannot be read.
Keys keys_of(const Dataset& data, int threads,
             const std::function<std::optional<std::uint64_t>(std::int64_t)>& key_of) {
  Keys keys(static_cast<std::size_t>(data.size()));
  const auto set = [&](std::int64_t i) {
    keys[static_cast<std::size_t>(i)] = key_of(i);
    return std::string();
  };
  find_defects(data.size(), set, {.threads = threads});
  return keys;
}

Keys sizes_of(const Dataset& data) {
  return keys_of(data, 1, [&](std::int64_t i) -> std::optional<std::uint64_t> {
    return data.origin().image_bytes(data.origin_index(i));
  });
}

/// Of images that have a size.
Keys hashes_of(const Dataset& data, int threads, const Keys& sizes) {
  return keys_of(data, threads, [&](std::int64_t i) -> std::optional<std::uint64_t> {
    const auto size = sizes[static_cast<std::size_t>(i)];
    if (!size) return std::nullopt;
    ThreadScratch scratch;
    const StoredSample sample = data.origin().fetch(data.origin_index(i), scratch.bytes());
    kernels::HashOf hash;
    hash.add(*size, kernels::fnv1a(text_of(sample.bytes)));
    return hash.value();
  });
}

/// Drops the keys that no image of `others` has. Returns the sum of those that stay.
std::uint64_t keep_shared(Keys& keys, const Keys& others) {
  const std::unordered_set<std::optional<std::uint64_t>> known(others.begin(), others.end());
  std::uint64_t sum = 0;
  for (auto& key : keys) {
    if (!known.contains(key)) key.reset();
    sum += key.value_or(0);
  }
  return sum;
}

}  // namespace

Duplicates find_duplicates(const Dataset& train, const Dataset& held_out, int threads) {
  constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
  constexpr std::size_t kPairs = 3;
  Duplicates found;
  if (!is_looked_into(train.size() + held_out.size())) return found;
  Keys of_train = sizes_of(train), of_held_out = sizes_of(held_out);
  const std::uint64_t bytes = keep_shared(of_train, of_held_out) + keep_shared(of_held_out, of_train);
  if (bytes == 0 || bytes > kMostBytes) return found;
  of_train = hashes_of(train, threads, of_train);
  of_held_out = hashes_of(held_out, threads, of_held_out);
  std::unordered_map<std::uint64_t, std::int64_t> known;
  for (std::size_t i = 0; i < of_train.size(); ++i)
    if (of_train[i]) known.try_emplace(*of_train[i], static_cast<std::int64_t>(i));
  for (std::size_t i = 0; i < of_held_out.size(); ++i) {
    const auto at = of_held_out[i] ? known.find(*of_held_out[i]) : known.end();
    if (at == known.end()) continue;
    ++found.count;
    if (found.pairs.size() < kPairs)
      found.pairs.push_back(held_out.where(static_cast<std::int64_t>(i)) + " = " + train.where(at->second));
  }
  return found;
}

}  // namespace athanor::detail
