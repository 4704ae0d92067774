#include "kernels/cuda/plan_folder.h"

#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "kernels/hash.h"
#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"

namespace athanor::cuda {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 2;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;  // a plan takes a few KiB

std::string hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = kernels::mix64(hash ^ static_cast<unsigned char>(c));
  return fmt::format("{:016x}", hash);
}

/// All that a file says, but for the checksum over it.
Json described(const std::string& key, const std::string& made_by, const StoredPlan& stored) {
  return {{"athanor_plan", kFormat}, {"key", key},          {"made_by", made_by},
          {"own_ms", stored.own_ms}, {"plan", stored.plan}, {"vendor_ms", stored.vendor_ms}};
}

}  // namespace

std::string dotted(std::int64_t version, int major, int minor) {
  return fmt::format("{}.{}.{}", version / major, version % major / minor, version % minor);
}

std::string kernel_driver_version(const std::filesystem::path& file) {
  std::string version;
  std::ifstream(file) >> version;
  return version.empty() ? "unknown" : printable(version.substr(0, 40));
}

std::filesystem::path PlanFolder::path_of(const std::string& key) const {
  return folder_ / (hash_of(full(key)) + ".json");
}

std::pair<Lookup, StoredPlan> PlanFolder::load(const std::string& key) const {
  if (!enabled()) return {Lookup::missing, {}};
  std::ifstream file(path_of(key), std::ios::binary);
  if (!file) return {Lookup::missing, {}};
  std::string text(kMaxBytes, '\0');
  file.read(text.data(), std::ssize(text));
  text.resize(static_cast<std::size_t>(file.gcount()));
  try {
    Json json = Json::parse(text);
    const std::string checksum = json.at("checksum");
    json.erase("checksum");
    StoredPlan stored{json.at("plan"), json.at("vendor_ms"), json.at("own_ms")};
    const std::string made_by = json.at("made_by");
    // Compared as it would be written: any other field, type or format differs.
    if (json != described(full(key), made_by, stored) || checksum != hash_of(json.dump()))
      return {Lookup::rejected, {}};
    if (made_by != made_by_) return {Lookup::outdated, {}};
    return {Lookup::found, std::move(stored)};
  } catch (const Json::exception&) {
    return {Lookup::rejected, {}};
  }
}

bool PlanFolder::save(const std::string& key, const StoredPlan& stored) const {
  if (!enabled()) return false;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) return false;
  try {
    Json json = described(full(key), made_by_, stored);
    json["checksum"] = hash_of(json.dump());
    write_atomically(path_of(key), json.dump(1) + "\n");
    return true;
  } catch (const IoError&) {
    return false;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace athanor::cuda
