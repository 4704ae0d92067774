#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace athanor {

/// Custom flags of a program, in addition to those shared by all training programs:
///
///     double temperature = 4;
///     return train_main(argc, argv, config, dist::networks(), fit, [&](Flags& flags) {
///       flags.add("--temperature T", temperature, "temperature of both softmaxes [{}]");
///     });
///
/// --help lists them under the program's name. Their values are settings of the run, which must be equal on
/// all ranks and in a resumed run. Paths are not compared, as files may be elsewhere.
class Flags {
 public:
  /// `usage`: the flag, and the name of its value for --help. `target` holds the default, which replaces "{}"
  /// in `help`, and receives the value. T: std::int64_t, int, double, float, std::string,
  /// std::filesystem::path, or bool for a switch, which has no value and sets `target`. Throws ArgumentError
  /// if the flag is not "--" followed by letters, digits and dashes, or was already added.
  template <class T> void add(const std::string& usage, T& target, const std::string& help);
  /// A flag with one of these words.
  void add(const std::string& usage, std::string& target, const std::string& help,
           std::vector<std::string> choices);

  struct Flag {
    std::string usage = {};  ///< "--temperature T"
    std::string help = {};
    std::function<void(const std::string& name, const std::string& text)> read =
        {};                                   ///< throws ArgumentError
    std::function<std::string()> print = {};  ///< its current value
    bool compared = true;

    std::string name() const { return usage.substr(0, usage.find(' ')); }
  };
  const std::vector<Flag>& all() const { return flags_; }

 private:
  void append(Flag flag);

  std::vector<Flag> flags_;
};

/// parse_flags() with custom flags. Throws ArgumentError if a flag is already shared by all programs.
TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig defaults, const Flags& own);

}  // namespace athanor
