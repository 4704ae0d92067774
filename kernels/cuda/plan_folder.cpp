#include "kernels/cuda/plan_folder.h"

#include <fstream>
#include <iterator>
#include <span>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "kernels/hash.h"
#include "tensor/atomic_file.h"
#include "tensor/error.h"

namespace athanor::cuda {
namespace {

using Json = nlohmann::json;

constexpr int kFormat = 1;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20;  // a plan takes a few KiB

std::string hash_of(std::string_view text) {
  std::uint64_t hash = text.size();
  for (const char c : text) hash = kernels::mix64(hash ^ static_cast<unsigned char>(c));
  return fmt::format("{:016x}", hash);
}

/// All that a file says, but for the checksum over it.
Json described(const std::string& key, const StoredPlan& stored) {
  return {{"athanor_plan", kFormat},
          {"key", key},
          {"own_ms", stored.own_ms},
          {"plan", stored.plan},
          {"vendor_ms", stored.vendor_ms}};
}

}  // namespace

std::filesystem::path PlanFolder::path_of(const std::string& key) const {
  return folder_ / (hash_of(key) + ".json");
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
    // Compared as it would be written: any other field, type or format differs.
    if (json != described(key, stored) || checksum != hash_of(json.dump())) return {Lookup::rejected, {}};
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
    Json json = described(key, stored);
    json["checksum"] = hash_of(json.dump());
    const std::string text = json.dump(1) + "\n";
    AtomicFile file(path_of(key));
    file.write(std::as_bytes(std::span(text)));
    file.commit();
    return true;
  } catch (const IoError&) {
    return false;
  } catch (const Json::exception&) {
    return false;
  }
}

}  // namespace athanor::cuda
