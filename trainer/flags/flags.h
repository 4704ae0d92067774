#pragma once

#include <cstdint>
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
  /// in `help`, and receives the value. Throws ArgumentError if the flag is not "--" followed by letters,
  /// digits and dashes, or was already added.
  void add(const std::string& usage, std::int64_t& target, const std::string& help);
  void add(const std::string& usage, int& target, const std::string& help);
  void add(const std::string& usage, double& target, const std::string& help);
  void add(const std::string& usage, float& target, const std::string& help);
  void add(const std::string& usage, std::string& target, const std::string& help);
  void add(const std::string& usage, std::filesystem::path& target, const std::string& help);
  /// A flag with one of these words.
  void add(const std::string& usage, std::string& target, const std::string& help,
           std::vector<std::string> choices);
  /// A switch: true if the flag is given.
  void add(const std::string& flag, bool& target, const std::string& help);

  struct Flag {
    std::string name = {};   ///< "--temperature"
    std::string value = {};  ///< the value's name in --help; empty for a switch
    std::string help = {};
    std::function<void(const std::string& text)> read = {};  ///< throws ArgumentError
    std::function<std::string()> text = {};                  ///< its current value; unset: not compared
  };
  const std::vector<Flag>& all() const { return flags_; }

 private:
  template <class T, class Read>
  void take(const std::string& usage, T& target, const std::string& help, const Read& read);
  void append(const std::string& usage, Flag flag);

  std::vector<Flag> flags_;
};

/// parse_flags() with custom flags. Throws ArgumentError if a flag is already shared by all programs.
TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig defaults, const Flags& own);

}  // namespace athanor
