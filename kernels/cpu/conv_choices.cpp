#include "kernels/conv_choices.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "kernels/cpu/conv_choice.h"
#include "tensor/error.h"

namespace athanor {
namespace {

constexpr const char* kPassNames[] = {"forward", "backward_data", "backward_weights"};

struct ConvCase {
  cpu::PrimitiveKey::Op pass{};
  DType in{}, out{};
  int threads = 0;
  std::array<std::int64_t, 16> sizes{};

  auto operator<=>(const ConvCase&) const = default;
};

ConvCase case_of(const cpu::PrimitiveKey& key) {
  return {key.op, key.in, key.out, key.threads, key.sizes};
}

using Choices = std::map<ConvCase, ConvImpl>;

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

template <class Names> int index_in(const Names& names, const std::string& name) {
  const auto found = std::find(std::begin(names), std::end(names), name);
  return found == std::end(names) ? -1 : static_cast<int>(found - std::begin(names));
}

// "forward f32 f32 2 64 28 28 1 6 ..."
std::string text_of(const ConvCase& conv) {
  return fmt::format("{} {} {} {} {}", kPassNames[static_cast<int>(conv.pass)], conv.in, conv.out,
                     conv.threads, fmt::join(conv.sizes, " "));
}

std::optional<std::pair<ConvCase, ConvImpl>> read_line(const std::string& line) {
  std::istringstream words(line);
  std::string pass, in, out, impl, rest;
  ConvCase conv;
  words >> pass >> in >> out >> conv.threads;
  for (std::int64_t& size : conv.sizes) words >> size;
  words >> impl;
  const int pass_index = index_in(kPassNames, pass), impl_index = index_in(kConvImplNames, impl);
  if (!words || words >> rest || pass_index < 0 || impl_index < 0) return {};
  conv.pass = static_cast<cpu::PrimitiveKey::Op>(pass_index);
  const auto in_dtype = dtype_named(in), out_dtype = dtype_named(out);
  if (!in_dtype || !out_dtype) return {};
  conv.in = *in_dtype;
  conv.out = *out_dtype;
  return {{conv, static_cast<ConvImpl>(impl_index)}};
}

std::optional<Choices> read(std::string_view text) {
  Choices choices;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto choice = read_line(line);
    if (!choice) return {};
    choices.insert(*choice);
  }
  return choices;
}

}  // namespace

std::string conv_choices() {
  const std::shared_lock lock(table().mutex);
  std::string text;
  for (const auto& [conv, impl] : table().choices)
    text += fmt::format("{} {}\n", text_of(conv), name_of(impl));
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

std::optional<ConvImpl> chosen_conv(const PrimitiveKey& key) {
  if (table().empty) return {};
  const std::shared_lock lock(table().mutex);
  const auto found = table().choices.find(case_of(key));
  if (found == table().choices.end()) return {};
  return found->second;
}

bool measures_convs() {
  return measuring != nullptr;
}

ConvImpl choose_conv(const PrimitiveKey& key, std::span<const ConvImpl> impls,
                     const std::function<void(ConvImpl)>& run) {
  constexpr int kRounds = 5;
  constexpr double kGain = 0.95;  // smaller differences are noise, and the rule is the same in every run
  MeasureConvs* const scope = std::exchange(measuring, nullptr);  // the rule itself is run, too
  ConvTimes times{text_of(case_of(key)), {}};
  for (const ConvImpl impl : impls) times.seconds.emplace_back(impl, std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round) {
    for (auto& [impl, seconds] : times.seconds) {
      run(impl);  // leaves the operands in cache, whatever ran before
      const auto began = std::chrono::steady_clock::now();
      run(impl);
      seconds =
          std::min(seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    }
  }
  const auto fastest = *std::ranges::min_element(
      times.seconds, {}, [](const std::pair<ConvImpl, double>& timed) { return timed.second; });
  const auto rule = times.seconds.front();
  const ConvImpl choice = fastest.second < kGain * rule.second ? fastest.first : rule.first;
  measuring = scope;
  if (scope->on_times()) scope->on_times()(times);
  const std::unique_lock lock(table().mutex);
  table().empty = false;
  return table().choices.insert({case_of(key), choice}).first->second;
}

}  // namespace cpu
}  // namespace athanor
