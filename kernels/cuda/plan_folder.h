#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
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

/// `outdated`: sound, but made by another driver, library or version of our kernels.
enum class Lookup : unsigned char { found, missing, rejected, outdated };

/// Files named by a hash of the key and the device. A file holds both, what its plan was made by (driver and
/// libraries), a checksum and the plan; one that is damaged, of another format, for another key or made by
/// others is no error, but is told apart and replaced by the next save(). Written whole or not at all, so
/// that processes may share the folder. Nothing here throws: without a disk we plan again.
class PlanFolder {
 public:
  /// An empty path keeps nothing.
  explicit PlanFolder(std::filesystem::path folder, std::string device = {}, std::string made_by = {})
      : folder_(std::move(folder)), device_(std::move(device)), made_by_(std::move(made_by)) {}

  bool enabled() const { return !folder_.empty(); }
  const std::filesystem::path& path() const { return folder_; }
  const std::string& made_by() const { return made_by_; }
  std::pair<Lookup, StoredPlan> load(const std::string& key) const;
  /// False where the folder cannot be made or written.
  bool save(const std::string& key, const StoredPlan& stored) const;
  std::filesystem::path path_of(const std::string& key) const;

 private:
  std::string full(const std::string& key) const { return key + " on " + device_; }

  std::filesystem::path folder_;
  std::string device_, made_by_;
};

/// 91900 as "9.19.0", with 10000 and 100.
std::string dotted(std::int64_t version, int major, int minor);
/// The version of NVIDIA's kernel module, "580.159.03", which says more than the CUDA version it supports;
/// "unknown" where the file does not exist.
std::string kernel_driver_version(const std::filesystem::path& file = "/sys/module/nvidia/version");

/// Values by key, forgotten all at once when there are too many; Key has ==, and hash().
template <class Key, class Value> class BoundedCache {
 public:
  explicit BoundedCache(std::size_t capacity) : capacity_(capacity) {}

  /// Null where there is none. Allocates nothing. Valid until the next insert().
  Value* find(const Key& key) {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  /// Replaces what was there.
  Value& insert(const Key& key, Value value) {
    if (values_.size() == capacity_ && !find(key)) clear();
    return values_.insert_or_assign(key, std::move(value)).first->second;
  }
  std::size_t size() const { return values_.size(); }
  void clear() { values_.clear(); }

 private:
  struct Hash {
    std::size_t operator()(const Key& key) const { return key.hash(); }
  };
  std::size_t capacity_;
  std::unordered_map<Key, Value, Hash> values_;
};

}  // namespace athanor::cuda
