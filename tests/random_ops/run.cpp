#include "tests/random_ops/run.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <regex>

#include "autograd/shape.h"
#include "tensor/base/error.h"
#include "tensor/io/safetensors.h"

namespace athanor::random_ops {
namespace {

constexpr std::int64_t kCasesPerFile = 1000;
constexpr double kWithoutPeer = 4;  // units allowed where no peer has measured any
constexpr double kRounded = 0.5;
constexpr double kOther = 1e4;  // what is as far off is another result, and no error

// Units that a result may be off by. What moves numbers and rounds none must be exact; a result that is
// rounded once is right. Of one that is rounded several times, a thousand cases have the peer's largest
// error, but not that of the same sum in another order, which is up to half a unit for each of its terms.
double limit_of(const Errors& limits, const std::string& op, DType dtype, bool backward) {
  const double peer = limits.of(op, dtype, backward);
  if (peer < 0) return kWithoutPeer;
  if (peer == 0 && !backward) return 0;
  return std::max(2 * peer, peer > kRounded ? kWithoutPeer : kRounded);
}

// visit(case) for as many as asked for, of the ops asked for.
template <class F> std::int64_t for_each_case(const Options& options, const F& visit) {
  const std::regex wanted(options.op);
  RandomOps ops;
  for (const RandomOp& op : random_ops()) {
    if (std::regex_match(op.name, wanted)) ops.push_back(op);
  }
  ATH_CHECK(!ops.empty(), "random_ops: --op must match the name of an op, but '{}' does not", options.op);
  for (std::int64_t done = 0; done < options.cases; ++done) {
    const auto turn = static_cast<std::uint64_t>(done);
    visit(draw_case(options.seed, ops[turn % ops.size()], options.first + turn / ops.size()));
  }
  return options.cases;
}

// The same tensor on a device, with the same strides.
Tensor on(Device device, const Tensor& x) {
  if (device == kCpu) return x;
  const auto elements = static_cast<std::int64_t>(x.storage()->bytes() / size_of(x.dtype()));
  const Tensor all = Tensor::wrap(x.storage(), 0, {elements}, {1}, x.dtype());
  return all.to(device).view_as_strided(x.shape(), x.strides(), x.offset());
}

StateDict run_on(Device device, const Drawn& drawn) {
  tool::OpCall call{drawn.call.op, drawn.call.attributes, {}, drawn.call.constants};
  for (const auto& [name, value] : drawn.call.tensors) {
    // What the op moves must not be the drawn one.
    const Tensor& x = std::get<Tensor>(value);
    if (drawn.number % 2 == 1) x.bump_version();  // as a leaf that an optimizer has written to
    if (drawn.same.contains(name)) continue;
    call.tensors.set(name, name.starts_with("running_") ? clone(x).to(device) : on(device, x));
  }
  for (const auto& [name, other] : drawn.same) call.tensors.set(name, call.tensors.tensor(other));
  try {
    return tool::run_op(call, device, drawn.impl);
  } catch (const BackendError&) {
    if (drawn.impl != "vendor") throw;
    return tool::run_op(call, device);  // what a vendor's library has no code for
  }
}

// All bytes of all inputs, gaps between elements included.
std::string bytes_of(const StateDict& tensors) {
  std::string bytes;
  for (const auto& [name, value] : tensors) {
    const auto& storage = *std::get<Tensor>(value).storage();
    bytes.append(reinterpret_cast<const char*>(storage.data()), storage.bytes());
  }
  return bytes;
}

bool is_backward(const Expected& expected) {
  return expected.name.starts_with("d");
}

// Counts what a case's results are off by; says what is wrong with them, or nothing.
std::string compare(const Drawn& drawn, const StateDict& results, const Options& options, Report& report) {
  std::string wrong;
  const std::string& op = drawn.call.op;
  const bool limited = !options.limits.all().empty();
  for (const Expected& expected : drawn.expected) {
    const bool backward = is_backward(expected);
    if (!results.contains(expected.name)) {
      wrong += fmt::format(" {} is missing.", expected.name);
      continue;
    }
    const Difference d = difference(results.tensor(expected.name), expected);
    Compared& compared =
        report.compared[fmt::format("{} {} {}", op, drawn.dtype, backward ? "backward" : "forward")];
    compared.elements += static_cast<std::int64_t>(expected.values.size());
    compared.skipped += d.skipped;
    if (d.comparable && is_floating(expected.dtype) && (!d.wrong.empty() || d.error >= kOther)) {
      const Results::Place place{op, drawn.number, expected.name};
      report.others.add(place, false);
      if (options.seed == 0 && options.others.has_ours(place)) continue;
    }
    if (!d.wrong.empty()) wrong += fmt::format(" {}.", d.wrong);
    if (!is_floating(expected.dtype)) continue;
    if (d.comparable && d.error < kOther) report.errors.add(op, expected.dtype, backward, d.error);
    const double limit = limited ? limit_of(options.limits, op, expected.dtype, backward) : kOther;
    if (d.error > limit) {
      wrong +=
          fmt::format(" {}[{}] must be {:.17g} within {:.3g} units, but is {:.17g}, {:.3g} off.",
                      expected.name, d.at, static_cast<double>(expected.values[d.at]), limit, d.got, d.error);
    }
  }
  return wrong;
}

std::string case_name(const Drawn& drawn) {
  return fmt::format("{}.{}", drawn.call.op, drawn.number);
}
std::string file_name(const std::string& folder, std::int64_t chunk, const char* ending) {
  return fmt::format("{}/{:05}{}", folder, chunk, ending);
}

nlohmann::json description_of(const Drawn& drawn) {
  nlohmann::json results = nlohmann::json::object();
  for (const Expected& expected : drawn.expected)
    results[expected.name] = std::string(name_of(expected.dtype));
  return {{"case", case_name(drawn)},
          {"op", drawn.call.op},
          {"attributes", drawn.call.attributes},
          {"same", drawn.same},
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

std::vector<std::string> Report::never_compared() const {
  std::vector<std::string> names;
  for (const auto& [name, count] : compared) {
    if (count.elements == count.skipped) names.push_back(name);
  }
  return names;
}

Report run_cases(const Options& options) {
  Report report;
  report.cases = for_each_case(options, [&](const Drawn& drawn) {
    std::string wrong;
    try {
      const std::string before = bytes_of(drawn.call.tensors);
      const StateDict results = run_on(options.device, drawn);
      if (options.show) show(drawn, results);
      wrong = compare(drawn, results, options, report);
      if (bytes_of(drawn.call.tensors) != before) wrong += " The inputs must stay as they are, but do not.";
    } catch (const std::exception& error) {
      wrong = std::string(" threw ") + error.what();
    }
    if (wrong.empty()) return;
    if (++report.failures <= 50) {
      std::printf("--seed %llu --op %s --case %llu:%s %s\n", static_cast<unsigned long long>(options.seed),
                  drawn.call.op.c_str(), static_cast<unsigned long long>(drawn.number), wrong.c_str(),
                  drawn.describe().c_str());
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
      tensors.set(fmt::format("{}/{}", case_name(drawn), name), contiguous(std::get<Tensor>(value)));
    calls.push_back(description_of(drawn));
    if (static_cast<std::int64_t>(calls.size()) == kCasesPerFile) write();
  });
  if (!calls.empty()) write();
}

Report measure_cases(const Options& options, const std::string& folder) {
  Report report, ours;
  std::int64_t next = 0;
  StateDict results;
  report.cases = for_each_case(options, [&](const Drawn& drawn) {
    if (next % kCasesPerFile == 0)
      results = safetensors::load(file_name(folder, next / kCasesPerFile, ".peer.safetensors"));
    ++next;
    const StateDict own = results.under(case_name(drawn) + "/");
    if (own.empty()) return;
    const std::string wrong = compare(drawn, own, {}, report);
    if (wrong.empty()) return;
    ++report.failures;
    std::printf("--op %s --case %llu:%s %s\n", drawn.call.op.c_str(),
                static_cast<unsigned long long>(drawn.number), wrong.c_str(), drawn.describe().c_str());
    compare(drawn, run_on(kCpu, drawn), {}, ours);
  });
  for (const auto& [place, of_peer] : report.others.all()) {
    if (ours.others.contains(place)) report.others.add(place, true);
  }
  return report;
}

}  // namespace athanor::random_ops
