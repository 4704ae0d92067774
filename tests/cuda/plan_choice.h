#pragma once

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/context.h"
#include "kernels/cuda/plan_choice.h"
#include "kernels/scratch.h"
#include "tensor/detail/device_memory.h"
#include "tests/cuda/device.h"
#include "tests/support/temp_dir.h"

// A made-up vendor, for tests of how plans are chosen.

namespace athanor::test {

using cuda::BoundedCache;
using cuda::Choice;
using cuda::PlanFolder;

struct Signature {
  int number = 0;
  std::string name = {};

  bool operator==(const Signature& other) const { return number == other.number; }
  std::size_t hash() const { return static_cast<std::size_t>(number); }
  const std::string& str() const { return name; }
};

/// Stands for a vendor's plan: its work is to set that many bytes.
struct Plan {
  std::size_t bytes = 0;
};
inline std::string write(const Plan& plan) {
  return std::to_string(plan.bytes);
}

inline constexpr std::size_t kQuick = std::size_t{1} << 10,
                             kSlow = std::size_t{1} << (kChecksEveryAccess ? 20 : 25);
// Bytes of plans that do not run, that need more memory than there is, whose trial goes wrong, and whose
// trial tells nothing.
inline constexpr std::size_t kBroken = 1, kHuge = 2, kUntestable = 3, kUnjudged = 4;

struct Steps {
  CudaContext& context;
  std::vector<std::size_t> candidates;
  std::size_t own_bytes = kSlow;
  std::size_t unacceptable = 0;
  std::string name = "signature";
  bool certain = true;
  bool ours_next = true;
  Tensor added_to = {};
  cuda::PlanWay* known = nullptr;               // where its plans are made in several ways,
  std::vector<cuda::PlanWay> broken_ways = {};  // in some of which no plan runs,
  std::vector<cuda::PlanWay> empty_ways = {};   // and in some there is none
  mutable std::vector<cuda::PlanWay> asked_ways = {};
  mutable std::size_t asked_for = 0, runs = 0;
  mutable std::vector<void*> written = {};
  mutable Signature signature = {};

  cuda::PlanWay* way() const { return known; }
  cuda::Found<Plan> find(std::size_t most, cuda::PlanWay made) const {
    asked_for = most;
    asked_ways.push_back(made);
    const bool broken = std::count(broken_ways.begin(), broken_ways.end(), made) > 0;
    cuda::Found<Plan> found{{}, certain, certain ? "" : "the library is not itself"};
    if (std::count(empty_ways.begin(), empty_ways.end(), made) > 0) return found;
    for (std::size_t bytes : candidates) found.plans.push_back({broken ? kBroken : bytes});
    if (found.plans.size() > most) found.plans.resize(most);
    return found;
  }
  std::optional<Plan> read(const std::string& text) const {
    if (text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
    return Plan{std::stoull(text)};
  }
  const Tensor& result() const { return added_to; }
  bool accumulates() const { return added_to.defined(); }
  std::optional<bool> accept(const Plan& plan) const {
    if (plan.bytes == kUnjudged) return {};
    if (plan.bytes == kUntestable) throw OutOfMemoryError("no room for its workspace");
    return plan.bytes != unacceptable;
  }
  void run(const Plan& plan, const Tensor& to) const {
    ++runs;
    if (to.defined()) written.push_back(to.raw_data());
    if (plan.bytes == kBroken) throw BackendError("does not run");
    if (plan.bytes == kHuge) throw OutOfMemoryError("no room for its workspace");
    set(plan.bytes);
  }
  void run_own(const Tensor& to) const {
    if (to.defined()) written.push_back(to.raw_data());
    set(own_bytes);
  }
  bool ours_is_next() const { return ours_next; }

  void set(std::size_t bytes) const {
    const Scratch memory = context.scratch(bytes);
    athanor::detail::set_device_bytes(memory.as<void>(), context.device(), 1, bytes);
  }
};

class PlanChoiceTest : public DeviceTest {
 protected:
  CudaContext& context() { return cuda_context(device()); }
  void TearDown() override {
    if (!IsSkipped()) {
      context().deterministic = false;
      allocator_of(device()).set_limit(0);
    }
    DeviceTest::TearDown();
  }
  const Choice<Plan>& choose(const Steps& steps, int signature = 0) {
    steps.signature = {signature, steps.name};
    return cuda::choose<Plan>({context(), options, log, folder}, cache, steps);
  }
  cuda::Answer serve(const Steps& steps, bool may_prefer_own = true) {
    steps.signature = {0, steps.name};
    return cuda::serve<Plan>({context(), options, log, folder}, cache, may_prefer_own, steps);
  }
  bool kept(const std::string& name = "signature") { return std::filesystem::exists(folder.path_of(name)); }
  std::size_t chosen(const Steps& steps, int signature = 0) {
    const Choice<Plan>& choice = choose(steps, signature);
    return choice.plan ? choice.plan->bytes : 0;
  }

  /// What the user is told, of what has that word.
  std::vector<std::string> lines(const std::string& word = "") {
    std::vector<std::string> told;
    log.exchange([&](const std::string& line) {
      if (line.find(word) != line.npos) told.push_back(line);
    });
    log.exchange({});
    return told;
  }

  TempDir dir;
  cuda::VendorOptions options;
  cuda::VendorLog log;
  const VendorStats& stats = log.stats;
  PlanFolder folder{dir.path() / "plans", "GPU", "driver 1, cuDNN 9"};
  BoundedCache<Signature, Choice<Plan>> cache{4};
};

}  // namespace athanor::test
