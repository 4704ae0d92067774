#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "trainer/config.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/flags.h"

namespace athanor::detail {

/// Adds flags to a CLI11 app, which splits and matches arguments; error messages are our own.
class FlagTable {
 public:
  explicit FlagTable(CLI::App& app) : app_(app) {}

  /// All flags after parsing, for config.json.
  std::vector<FlagValue> values() const {
    std::vector<FlagValue> values;
    for (const Shown& flag : shown_) {
      const CLI::Option* const option = app_.get_option(flag.name);
      const bool given = option->count() > 0;
      const bool is_list = option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
      values.push_back({flag.name,
                        !given    ? flag.standard
                        : is_list ? fmt::format("{}", fmt::join(option->results(), " "))
                                  : option->results().back(),
                        given ? "flag" : "default", is_list});
    }
    return values;
  }

  /// `usage`: names and the value's name in --help, as "--epochs,--max-epochs N"; the first name is the one
  /// shown. `read` converts a text to the value of `target`; "{}" in `help` is the default.
  template <class T, class Read>
  void add(const std::string& usage, const std::string& help, T& target, const Read& read) {
    const std::size_t space = usage.find(' ');
    const std::string names = usage.substr(0, space), flag = names.substr(0, names.find(','));
    const auto take = [&target, read, flag](const CLI::results_t& texts) {
      target = static_cast<T>(read(flag, texts.at(0)));
      return true;
    };
    app_.add_option(names, take, wrapped(help, target))
        ->type_name(usage.substr(space + 1))
        ->take_last()
        ->group(group_);
    shown_.push_back({flag, standard_of(help, target)});
  }
  /// A flag that may be repeated: appends each converted value to `target`.
  template <class T, class Read>
  void add_each(const std::string& usage, const std::string& help, std::vector<T>& target, const Read& read) {
    const std::size_t space = usage.find(' ');
    const std::string flag = usage.substr(0, space);
    const auto take = [&target, read, flag](const CLI::results_t& texts) {
      target.clear();
      for (const std::string& text : texts) target.push_back(read(flag, text));
      return true;
    };
    app_.add_option(flag, take, terminal::wrapped(help, kHelpColumns, 0))
        ->type_name(usage.substr(space + 1))
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(group_);
    shown_.push_back({flag, standard_of(help, target)});
  }
  /// A switch with an optional value after "=": 1 without.
  template <class T, class Read>
  void add_switch(const std::string& name, const std::string& help, T& target, const Read& read) {
    const auto take = [&target, read, name](const CLI::results_t& texts) {
      target = texts.at(0) == "true" ? T(1) : static_cast<T>(read(name, texts.at(0)));
      return true;
    };
    app_.add_option(name, take, terminal::wrapped(help, kHelpColumns, 0))
        ->type_name("")
        ->expected(0)
        ->default_str("")
        ->group(group_);
    shown_.push_back({name, "0"});
  }
  void on(const std::string& name, const std::string& help, bool& target) {
    app_.add_flag(name, target, wrapped(help, target))->group(group_);
    shown_.push_back({name, target ? "true" : "false"});
  }
  /// A switch that calls `given`.
  void ask(const std::string& name, const std::string& help, const std::function<void()>& given) {
    app_.add_flag_callback(name, given, terminal::wrapped(help, kHelpColumns, 0))->group(group_);
    shown_.push_back({name, "false"});
  }
  void add_own(const Flags::Flag& flag) {
    const auto take = [&flag](const CLI::results_t& texts) {
      flag.read(texts.at(0));
      return true;
    };
    const std::string help = terminal::wrapped(flag.help, kHelpColumns, 0);
    shown_.push_back({flag.name, flag.text ? flag.text() : ""});
    if (flag.value.empty()) {
      app_.add_flag_callback(
              flag.name, [&flag] { flag.read(""); }, help)
          ->group(group_);
    } else {
      app_.add_option(flag.name, take, help)->type_name(flag.value)->take_last()->group(group_);
    }
  }
  /// The heading in --help of flags added from now on.
  void group(std::string heading) { group_ = std::move(heading); }
  /// Changes a default as a consequence of other flags.
  void set_standard(const std::string& name, const std::string& value) {
    for (Shown& flag : shown_) {
      if (flag.name == name) flag.standard = value;
    }
  }
  bool given(const std::string& name) const { return app_.get_option(name)->count() > 0; }
  bool has(const std::string& name) const { return app_.get_option_no_throw(name) != nullptr; }

 private:
  struct Shown {
    std::string name;
    std::string standard;  ///< the default
  };

  /// The default, as is or as shown in brackets in the help.
  template <class T> static std::string standard_of(const std::string& help, const T& value) {
    if constexpr (std::is_same_v<T, std::filesystem::path> || std::is_same_v<T, std::string>) {
      if (!value.empty()) return std::filesystem::path(value).string();
    }
    const std::size_t open = help.rfind('['), close = help.rfind(']');
    if (open == std::string::npos || close < open) return "";
    const std::string text = help.substr(open + 1, close - open - 1);
    if constexpr (std::is_arithmetic_v<T>) return fmt::format(fmt::runtime(text), value);
    return text;
  }
  template <class T> static std::string wrapped(const std::string& help, const T& value) {
    if constexpr (std::is_arithmetic_v<T>)
      return terminal::wrapped(fmt::format(fmt::runtime(help), value), kHelpColumns, 0);
    return terminal::wrapped(help, kHelpColumns, 0);
  }

  static constexpr int kHelpColumns = terminal::kColumns - 30;  // after the names

  CLI::App& app_;
  std::string group_;
  std::vector<Shown> shown_;
};

}  // namespace athanor::detail
