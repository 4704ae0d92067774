#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "trainer/config.h"

namespace athanor {

/// Flags of a program's own, beside those that all training programs share:
///
///     double temperature = 4;
///     return train_main(argc, argv, config, dist::networks(), fit, [&](Flags& flags) {
///       flags.add("--temperature T", temperature, "temperature of both softmaxes [{}]");
///     });
///
/// --help lists them under the program's name. What they were set to is a setting of the run: one that goes
/// on must have the same, and so must all ranks. Paths are not compared, for a file may lie elsewhere.
class Flags {
 public:
  /// `usage`: the flag, and what --help calls its value. `target` holds the default, which "{}" in `help`
  /// stands for, and gets the value. Throws ArgumentError where the flag is no "--" with letters, digits and
  /// dashes behind it, or was added before.
  void add(const std::string& usage, std::int64_t& target, const std::string& help);
  void add(const std::string& usage, int& target, const std::string& help);
  void add(const std::string& usage, double& target, const std::string& help);
  void add(const std::string& usage, float& target, const std::string& help);
  void add(const std::string& usage, std::string& target, const std::string& help);
  void add(const std::string& usage, std::filesystem::path& target, const std::string& help);
  /// One of these words.
  void add(const std::string& usage, std::string& target, const std::string& help,
           std::vector<std::string> choices);
  /// A switch: true where the flag is given.
  void add(const std::string& flag, bool& target, const std::string& help);

  struct Flag {
    std::string name = {};   ///< "--temperature"
    std::string value = {};  ///< what --help calls its value; empty for a switch
    std::string help = {};
    std::function<void(const std::string& text)> read = {};  ///< throws ArgumentError
    std::function<std::string()> text = {};                  ///< as it is now; none: it is not compared
  };
  const std::vector<Flag>& all() const { return flags_; }

 private:
  template <class T, class Read>
  void take(const std::string& usage, T& target, const std::string& help, const Read& read);
  void append(const std::string& usage, Flag flag);

  std::vector<Flag> flags_;
};

/// parse_flags() with flags of the program's own. Throws ArgumentError where all programs have such a flag.
TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig defaults, const Flags& own);

}  // namespace athanor
