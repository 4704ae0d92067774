#pragma once

#include <cstddef>
#include <filesystem>
#include <list>
#include <string>
#include <unordered_map>
#include <utility>

// Where plans are kept: in memory by signature, and between runs in a folder, one file each.

namespace athanor::cuda {

/// What was found out about a signature.
struct StoredPlan {
  std::string plan;                  ///< the vendor's text or bytes; empty where the vendor has none
  double vendor_ms = 0, own_ms = 0;  ///< measured; 0 where not

  bool operator==(const StoredPlan&) const = default;
};

enum class Lookup : unsigned char { found, missing, rejected };

/// Files named by a hash of the key. A file holds its key, a checksum and the plan; one that is damaged, of
/// another format or for another key is rejected, never an error. Written whole or not at all, so that
/// processes may share the folder. Nothing here throws: without a disk we plan again.
class PlanFolder {
 public:
  /// An empty path keeps nothing.
  explicit PlanFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  bool enabled() const { return !folder_.empty(); }
  std::pair<Lookup, StoredPlan> load(const std::string& key) const;
  /// False where the folder cannot be made or written.
  bool save(const std::string& key, const StoredPlan& stored) const;
  std::filesystem::path path_of(const std::string& key) const;

 private:
  std::filesystem::path folder_;
};

/// The last `capacity` values used, by key; Key has ==, and hash().
template <class Key, class Value> class BoundedCache {
 public:
  explicit BoundedCache(std::size_t capacity) : capacity_(capacity) {}

  /// Null where there is none. Allocates nothing. Valid until the next insert().
  Value* find(const Key& key) {
    const auto found = index_.find(key);
    if (found == index_.end()) return nullptr;
    entries_.splice(entries_.begin(), entries_, found->second);
    return &entries_.front().second;
  }
  /// Replaces what was there; the value least recently used goes where the cache is full.
  Value& insert(const Key& key, Value value) {
    if (Value* const old = find(key)) return *old = std::move(value);
    if (entries_.size() == capacity_) {
      index_.erase(entries_.back().first);
      entries_.pop_back();
    }
    entries_.emplace_front(key, std::move(value));
    index_.emplace(key, entries_.begin());
    return entries_.front().second;
  }
  std::size_t size() const { return entries_.size(); }
  void clear() {
    index_.clear();
    entries_.clear();
  }

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const { return key.hash(); }
  };
  std::size_t capacity_;
  std::list<std::pair<Key, Value>> entries_;  // latest used first
  std::unordered_map<Key, typename std::list<std::pair<Key, Value>>::iterator, Hash> index_;
};

}  // namespace athanor::cuda
