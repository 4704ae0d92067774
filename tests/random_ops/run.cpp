#include "tests/random_ops/run.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <regex>

#include "autograd/shape.h"
#include "tensor/error.h"
#include "tensor/safetensors.h"

namespace athanor::random_ops {
namespace {

constexpr std::int64_t kCasesPerFile = 1000;
constexpr double kWithoutPeer = 4;  // units allowed where no peer has measured any
constexpr double kRounded = 0.5;
constexpr double kOther = 1e4;  // what is as far off is another result, and no error

// Where ours is off by more than twice a peer's error, so far: how much, in units, and why.
struct Wider {
  const char* op;
  DType dtype;
  bool backward;
  double units;
};
constexpr Wider kWider[] = {
    {"conv2d", DType::f32, true, 6},             // Winograd's algorithm
    {"cosine_similarity", DType::f32, true, 4},  // a chain of ops, each of which rounds
    {"gelu_tanh", DType::f64, true, 2},          // 1 - s is rounded before it is multiplied
    {"gelu_tanh", DType::f32, true, 2},
    {"mean", DType::f32, false, 1.5},  // times 1 / n, which is rounded
    {"tanh", DType::f32, false, 1.5},  // kernels/math.h says 1.4
};

// Units that a result may be off by. What moves numbers and rounds none must be exact; a result that is
// rounded once is right.
double limit_of(const Errors& limits, const std::string& op, DType dtype, bool backward) {
  for (const Wider& known : kWider) {
    if (known.op == op && known.dtype == dtype && known.backward == backward) return known.units;
  }
  const double peer = limits.of(op, dtype, backward);
  if (peer < 0) return kWithoutPeer;
  return peer == 0 && !backward ? 0 : std::max(2 * peer, kRounded);
}

// visit(case) for as many as asked for, of the ops asked for.
template <class F> std::int64_t for_each_case(const Options& options, const F& visit) {
  const std::regex wanted(options.op);
  std::int64_t done = 0;
  for (std::uint64_t number = options.first, skipped = 0; done < options.cases; ++number) {
    if (!std::regex_match(op_of(number).name, wanted)) {
      ATH_CHECK(++skipped < 1000, "random_ops: --op must match the name of an op, but '{}' does not",
                options.op);
      continue;
    }
    skipped = 0;
    visit(draw_case(options.seed, number));
    ++done;
  }
  return done;
}

// The same tensor on a device, with the same strides.
Tensor on(Device device, const Tensor& x) {
  if (device == kCpu) return x;
  const auto elements = static_cast<std::int64_t>(x.storage()->bytes() / size_of(x.dtype()));
  const Tensor all = Tensor::wrap(x.storage(), 0, {elements}, {1}, x.dtype());
  return all.to(device).view_as_strided(x.shape(), x.strides(), x.offset());
}

StateDict run_on(Device device, const Drawn& drawn) {
  tool::OpCall call{drawn.call.op, drawn.call.attributes, {}};
  for (const auto& [name, value] : drawn.call.tensors) {
    // What the op moves must not be the drawn one.
    const Tensor& x = std::get<Tensor>(value);
    call.tensors.set(name, name.starts_with("running_") ? clone(x).to(device) : on(device, x));
  }
  try {
    return tool::run_op(call, device, drawn.impl);
  } catch (const BackendError&) {
    if (drawn.impl != "vendor") throw;
    return tool::run_op(call, device);  // what a vendor's library has no code for
  }
}

bool is_backward(const Expected& expected) {
  return expected.name.starts_with("d");
}

// Counts what a case's results are off by; says what is wrong with them, or nothing.
std::string compare(const Drawn& drawn, const StateDict& results, const Options& options, Errors& errors) {
  std::string wrong;
  const bool limited = !options.limits.all().empty();
  for (const Expected& expected : drawn.expected) {
    const bool backward = is_backward(expected);
    if (!results.contains(expected.name)) {
      wrong += fmt::format(" {} is missing.", expected.name);
      continue;
    }
    const Difference d = difference(results.tensor(expected.name), expected);
    if (!d.wrong.empty()) wrong += fmt::format(" {}.", d.wrong);
    if (!is_floating(expected.dtype)) continue;
    if (d.error < kOther) errors.add(drawn.call.op, expected.dtype, backward, d.error);
    const double limit = limited ? limit_of(options.limits, drawn.call.op, expected.dtype, backward) : kOther;
    if (d.error > limit) {
      wrong +=
          fmt::format(" {}[{}] must be {:.17g} within {:.3g} units, but is {:.17g}, {:.3g} off.",
                      expected.name, d.at, static_cast<double>(expected.values[d.at]), limit, d.got, d.error);
    }
  }
  return wrong;
}

std::string file_name(const std::string& folder, std::int64_t chunk, const char* ending) {
  return fmt::format("{}/{:05}{}", folder, chunk, ending);
}

nlohmann::json description_of(const Drawn& drawn) {
  nlohmann::json results = nlohmann::json::object();
  for (const Expected& expected : drawn.expected)
    results[expected.name] = std::string(name_of(expected.dtype));
  return {{"case", drawn.number},
          {"op", drawn.call.op},
          {"attributes", drawn.call.attributes},
          {"results", results}};
}

}  // namespace

namespace {

void show(const Drawn& drawn, const StateDict& results) {
  std::printf("%s\n", drawn.describe().c_str());
  for (const auto& [name, value] : drawn.call.tensors) {
    const Tensor& x = std::get<Tensor>(value);
    std::printf("%s = %s\n", name.c_str(), fmt::format("{}", fmt::join(x.to_vector(), " ")).c_str());
  }
  for (const Expected& expected : drawn.expected) {
    std::printf("%s = %s\n  must be", expected.name.c_str(),
                fmt::format("{}", fmt::join(results.tensor(expected.name).to_vector(), " ")).c_str());
    for (std::size_t i = 0; i < expected.values.size(); ++i)
      std::printf(" %.17Lg (%.3Lg)", expected.values[i], expected.errors[i]);
    std::printf("\n");
  }
}

}  // namespace

Report run_cases(const Options& options) {
  Report report;
  report.cases = for_each_case(options, [&](const Drawn& drawn) {
    std::string wrong;
    try {
      const StateDict results = run_on(options.device, drawn);
      if (options.show) show(drawn, results);
      wrong = compare(drawn, results, options, report.errors);
    } catch (const std::exception& error) {
      wrong = std::string(" threw ") + error.what();
    }
    if (wrong.empty()) return;
    if (++report.failures <= 50) {
      std::printf("--seed %llu --case %llu:%s %s\n", static_cast<unsigned long long>(options.seed),
                  static_cast<unsigned long long>(drawn.number), wrong.c_str(), drawn.describe().c_str());
    }
  });
  return report;
}

void dump_cases(const Options& options, const std::string& folder) {
  std::filesystem::create_directories(folder);
  StateDict tensors;
  nlohmann::json calls = nlohmann::json::array();
  std::int64_t chunk = 0;
  const auto write = [&] {
    safetensors::save(file_name(folder, chunk++, ".safetensors"), tensors, {{"calls", calls.dump()}});
    tensors = {};
    calls = nlohmann::json::array();
  };
  for_each_case(options, [&](const Drawn& drawn) {
    for (const auto& [name, value] : drawn.call.tensors)
      tensors.set(fmt::format("{}/{}", drawn.number, name), contiguous(std::get<Tensor>(value)));
    calls.push_back(description_of(drawn));
    if (static_cast<std::int64_t>(calls.size()) == kCasesPerFile) write();
  });
  if (!calls.empty()) write();
}

Report measure_cases(const Options& options, const std::string& folder) {
  Report report;
  std::int64_t next = 0;
  StateDict results;
  report.cases = for_each_case(options, [&](const Drawn& drawn) {
    if (next % kCasesPerFile == 0)
      results = safetensors::load(file_name(folder, next / kCasesPerFile, ".peer.safetensors"));
    ++next;
    const StateDict own = results.under(std::to_string(drawn.number) + "/");
    if (own.empty()) return;
    const std::string wrong = compare(drawn, own, {}, report.errors);
    if (wrong.empty()) return;
    ++report.failures;
    std::printf("case %llu:%s %s\n", static_cast<unsigned long long>(drawn.number), wrong.c_str(),
                drawn.describe().c_str());
  });
  return report;
}

}  // namespace athanor::random_ops
