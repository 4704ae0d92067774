#include "simt/emulator/options.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <fmt/format.h>

namespace simt {
namespace {

template <class T> bool parse(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_order(std::string_view text, Order* order) {
  if (text == "forward") return order->kind = Order::Kind::forward, true;
  if (text == "reverse") return order->kind = Order::Kind::reverse, true;
  if (!text.starts_with("random")) return false;
  order->kind = Order::Kind::random;
  text.remove_prefix(6);
  return text.empty() || (text[0] == ':' && parse(text.substr(1), &order->seed));
}

}  // namespace

Options options_from_environment() {
  Options result;
  const auto read = [&](const char* name, const char* rule, auto&& use) {
    const char* text = std::getenv(name);
    if (text && *text && !use(std::string_view(text)) && result.error.empty()) {
      result.error = fmt::format("{} must be {}, but is '{}'", name, rule, text);
    }
  };
  constexpr auto kOrders = "forward, reverse or random[:seed]";
  read("SIMT_ORDER", kOrders, [&](auto text) { return parse_order(text, &result.threads); });
  read("SIMT_STREAM_ORDER", kOrders, [&](auto text) { return parse_order(text, &result.streams); });
  read("SIMT_SUMS", kOrders, [&](auto text) { return parse_order(text, &result.sums); });
  read("SIMT_ASYNC", "late or early", [&](auto text) {
    result.async = text == "early" ? Async::at_issue : Async::late;
    return text == "early" || text == "late";
  });
  read("SIMT_DEVICES", "a number from 0 to 64", [&](auto text) {
    return parse(text, &result.devices) && result.devices >= 0 && result.devices <= 64;
  });
  read("SIMT_MEMORY", "a number of bytes", [&](auto text) { return parse(text, &result.memory_bytes); });
  read("SIMT_PINNED", "a number of bytes", [&](auto text) { return parse(text, &result.pinned_bytes); });
  return result;
}

Options& options() {
  static Options& result = *new Options(options_from_environment());
  return result;
}

}  // namespace simt
