#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "trainer/flags/detail/read_flag.h"

/// The table of settings: one row for each setting of a TrainerConfig. It declares the command line and
/// --help, writes config.json and recipe.toml, checks a config made in code, and compares runs and ranks.
/// Rules between settings are in rules.cpp, flags of other trainers in other_trainers.h.
namespace athanor::detail {

/// Who must have an equal value.
enum class Same : std::uint8_t {
  unchecked,
  ranks,  ///< all ranks, whose messages depend on it
  run,    ///< also a run that resumes a checkpoint, as results depend on it
};

/// Whether recipe.toml has the flag.
enum class InRecipe : std::uint8_t {
  given,   ///< if it was given
  always,  ///< also a default, as another version or program may have others
  never,   ///< specific to one run or machine
};

/// What follows the flag on the command line.
enum class Takes : std::uint8_t { value, values, nothing, optional };

/// The value of a setting as text. Functions throw ArgumentError with the flag's name.
struct SettingValue {
  std::function<void(TrainerConfig&, const std::string& flag, const std::string& text)> read;
  std::function<std::string(const TrainerConfig&)> print;
  /// Throws if the value, neither the default nor from a flag, is not one that the flag takes.
  std::function<void(const TrainerConfig&, const std::string& flag)> check = {};
  bool as_is = false;  ///< config.json has the value itself as a default, not the words of --help
};

struct SettingRow {
  std::string usage;  ///< names and the value's name: "--epochs,--max-epochs N"; without dashes: no flag
  /// "{}" is the default; "{1}" the program's models, with "{0}" for the default. A last "[...]" of other
  /// words means that messages call the default "not given".
  std::string help;
  SettingValue value;
  Same same = Same::unchecked;
  InRecipe recipe = InRecipe::given;
  Takes takes = Takes::value;
  bool (*offered)(const TrainerConfig&) = nullptr;  ///< by which programs; null: by all
  /// The default in --help, and the value that is compared, if not the one that is printed.
  std::string (*shown)(const TrainerConfig&) = nullptr;
  std::string (*compared)(const TrainerConfig&) = nullptr;
  /// Whether a resumed run may have `value` in place of what was saved; null: only if they are equal.
  bool (*may_follow)(const std::string& saved, const std::string& value) = nullptr;

  std::string names() const { return usage.substr(0, usage.find(' ')); }  ///< "--epochs,--max-epochs"
  std::string name() const { return usage.substr(0, usage.find_first_of(", ")); }  ///< "--epochs"
  std::string value_name() const;
  std::string key() const;  ///< in checkpoints, and between ranks: "max_steps"
  bool is_offered(const TrainerConfig& config) const { return !offered || offered(config); }
  std::string compared_value(const TrainerConfig& config) const {
    return compared ? compared(config) : value.print(config);
  }
  /// The help text of a program with these defaults.
  std::string help_of(const TrainerConfig& defaults) const;
  /// The default for config.json.
  std::string standard(const TrainerConfig& defaults) const;
  bool shows_default() const { return help.find("{}") != std::string::npos; }

  /// For the less common properties in the table.
  template <class T> SettingRow&& with(T SettingRow::*property, std::type_identity_t<T> of_row) && {
    this->*property = of_row;
    return std::move(*this);
  }
};

struct SettingGroup {
  std::string heading;  ///< in --help; "" for settings without a flag
  std::vector<SettingRow> rows;
};

/// In the order of --help.
const std::vector<SettingGroup>& settings_table();
/// Null if there is none.
const SettingRow* find_setting(const std::string& name);

// A row's parts ---------------------------------------------------------------------------------------------

template <class T> std::string printed(const T& value) {
  if constexpr (std::is_same_v<T, std::filesystem::path>) {
    return value.string();
  } else if constexpr (std::is_convertible_v<T, std::string>) {
    return value;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return fmt::format("{}", value);
  } else if constexpr (requires { text(value); }) {
    return text(value);
  } else {
    return {};  // neither shown nor compared
  }
}
template <class T> std::string printed(const std::optional<T>& value) {
  if constexpr (requires { text(value); }) return text(value);
  return value ? printed(*value) : "none";
}

/// `member`: a pointer to a member, or a function from a config to a reference. `read` converts a text to its
/// value; read.print() prints it, if there is one.
template <class Member, class Read> SettingValue field(Member member, Read read) {
  using T = std::remove_cvref_t<std::invoke_result_t<Member, TrainerConfig&>>;
  SettingValue value;
  value.read = [=](TrainerConfig& config, const std::string& flag, const std::string& text) {
    std::invoke(member, config) = static_cast<T>(read(flag, text));
  };
  value.print = [=](const TrainerConfig& config) {
    const T& current = std::invoke(member, config);
    if constexpr (requires { read.print(current); }) return read.print(current);
    return printed(current);
  };
  if constexpr (std::is_arithmetic_v<T>) {
    value.check = [=](const TrainerConfig& config, const std::string& flag) {
      static const TrainerConfig defaults{};
      if (std::invoke(member, config) != std::invoke(member, defaults)) (void)read(flag, value.print(config));
    };
  }
  value.as_is = std::is_same_v<T, std::filesystem::path> || std::is_same_v<T, std::string>;
  return value;
}

/// Of several members: `set` reads a text into them.
template <class Set, class Print> SettingValue fields(Set set, Print print) {
  return {set, print};
}
template <class Set> SettingValue fields(Set set) {
  return fields(set, [](const TrainerConfig&) { return std::string(); });
}

/// A row of the table. A usage without a value's name is a switch.
inline SettingRow flag(std::string usage, std::string help, SettingValue value, Same same = Same::unchecked,
                       InRecipe recipe = InRecipe::given) {
  const Takes takes = usage.find(' ') == std::string::npos ? Takes::nothing : Takes::value;
  return {std::move(usage), std::move(help), std::move(value), same, recipe, takes};
}
template <class Member, class Read>
SettingRow flag(std::string usage, std::string help, Member member, Read read, Same same = Same::unchecked,
                InRecipe recipe = InRecipe::given) {
  return flag(std::move(usage), std::move(help), field(member, read), same, recipe);
}

}  // namespace athanor::detail
