#include "kernels/conv_choices.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <sstream>
#include <tuple>
#include <utility>

#include <fmt/ranges.h>

#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_list.h"
#include "kernels/impl.h"
#include "tensor/base/error.h"

namespace athanor {
namespace {

using cpu::kPassNames;
using cpu::PrimitiveKey;

constexpr std::string_view kRules = name_of(ConvImpl::automatic);

/// "forward f32 f32 2 64 28 28 1 6 ...", and the name of an implementation, or kRules.
using Choices = std::map<std::string, std::string_view, std::less<>>;

struct Table {
  std::shared_mutex mutex;
  Choices choices;
  std::atomic<bool> empty = true;  // spares runs without choices the lock
};
Table& table() {
  static Table table;
  return table;
}

constinit thread_local MeasureConvs* measuring = nullptr;

// In a buffer that does not allocate.
fmt::memory_buffer text_of(const PrimitiveKey& key) {
  fmt::memory_buffer text;
  fmt::format_to(std::back_inserter(text), "{} {} {} {} {}", cpu::pass_name(key.op), key.in, key.out,
                 key.threads, fmt::join(key.sizes, " "));
  return text;
}

/// Whether what follows the pass is as text_of() writes it.
bool are_types_and_sizes(const std::string& text) {
  std::istringstream words(text);
  std::string in, out;
  words >> in >> out;
  std::size_t numbers = 0;
  for (std::int64_t number = 0; words >> number;) ++numbers;
  return words.eof() && dtype_named(in) && dtype_named(out) &&
         numbers == 1 + std::tuple_size_v<decltype(PrimitiveKey::sizes)>;
}

std::optional<Choices> read(std::string_view text) {
  constexpr std::ptrdiff_t kSpaces = 4 + std::tuple_size_v<decltype(PrimitiveKey::sizes)>;
  Choices choices;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t last = std::min(line.rfind(' '), line.size() - 1);
    const std::string conv = line.substr(0, last), name = line.substr(last + 1);
    const std::size_t first = std::min(conv.find(' '), conv.size());
    const auto* const pass = std::ranges::find(kPassNames, conv.substr(0, first));
    if (std::ranges::count(line, ' ') != kSpaces || pass == std::end(kPassNames) ||
        !are_types_and_sizes(conv.substr(first)))
      return {};
    std::string_view known = name == kRules ? kRules : "";
    for (const auto& entry : cpu::conv_list(static_cast<PrimitiveKey::Op>(pass - std::begin(kPassNames))))
      if (entry.implementation->name == name) known = entry.implementation->name;
    if (known.empty()) return {};
    choices.insert({conv, known});
  }
  return choices;
}

}  // namespace

std::string conv_choices() {
  const std::shared_lock lock(table().mutex);
  std::string text;
  for (const auto& [conv, name] : table().choices) text += fmt::format("{} {}\n", conv, name);
  return text;
}

bool are_conv_choices(std::string_view text) {
  return read(text).has_value();
}

void set_conv_choices(std::string_view text) {
  std::optional<Choices> choices = read(text);
  ATH_CHECK(choices, "set_conv_choices: the text must be one that conv_choices() returned, but is '{}'",
            text.substr(0, 200));
  const std::unique_lock lock(table().mutex);
  table().choices = std::move(*choices);
  table().empty = table().choices.empty();
}

MeasureConvs::MeasureConvs(std::function<void(const ConvTimes&)> on_times)
    : on_times_(std::move(on_times)), before_(std::exchange(measuring, this)) {}
MeasureConvs::~MeasureConvs() {
  measuring = before_;
}

namespace cpu {
namespace {

/// Every implementation's time, from the definition up.
ConvTimes measure(CpuContext& context, const PrimitiveKey& key, const std::function<void(const Code&)>& run) {
  constexpr int kRounds = 5;
  ConvTimes times{fmt::to_string(text_of(key)), {}};
  const auto add = [&](std::string_view name) {
    const bool known = std::ranges::count(times.seconds, name, &std::pair<std::string_view, double>::first);
    if (!known && find_code(context, conv_list(key.op), key, name))
      times.seconds.emplace_back(name, std::numeric_limits<double>::infinity());
  };
  add(kRules);
  const std::span<const ListEntry> list = conv_list(key.op);
  for (auto entry = list.rbegin(); entry != list.rend(); ++entry) add(entry->implementation->name);
  for (int round = 0; round < kRounds; ++round) {
    for (auto& [name, seconds] : times.seconds) {
      const Code code = find_code(context, conv_list(key.op), key, name);
      run(code);  // leaves the operands in cache, whatever ran before
      const auto began = std::chrono::steady_clock::now();
      run(code);
      seconds =
          std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
  }
  return times;
}

}  // namespace

std::string_view chosen_conv(CpuContext& context, const PrimitiveKey& key,
                             const std::function<void(const Code&)>& run) {
  constexpr double kGain = 0.95;  // smaller differences are noise, and the rule is the same in every run
  if (table().empty && !measuring) return kRules;
  const fmt::memory_buffer text = text_of(key);
  std::string_view choice;
  {
    const std::shared_lock lock(table().mutex);
    const auto found = table().choices.find(std::string_view(text.data(), text.size()));
    if (found != table().choices.end()) choice = found->second;
  }
  if (!choice.empty()) return find_code(context, conv_list(key.op), key, choice) ? choice : kRules;
  if (!measuring) return kRules;
  const ConvTimes times = measure(context, key, run);
  const auto& rule = times.seconds.front();
  const auto& fastest =
      *std::ranges::min_element(times.seconds, {}, [](const auto& one) { return one.second; });
  if (measuring->on_times()) measuring->on_times()(times);
  const std::unique_lock lock(table().mutex);
  table().empty = false;
  return table()
      .choices.insert({times.conv, fastest.second < kGain * rule.second ? fastest.first : kRules})
      .first->second;
}

}  // namespace cpu
}  // namespace athanor
