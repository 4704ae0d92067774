// Parses a program's arguments, recipe and environment into its config.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include "tensor/nearest.h"
#include "trainer/config.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/flag_table.h"
#include "trainer/flags/detail/recipe_file.h"
#include "trainer/flags/detail/shared_flags.h"
#include "trainer/flags/detail/spellings.h"
#include "trainer/flags/flags.h"
#include "trainer/run_main.h"

namespace athanor {
namespace {

using detail::FlagTable;

/// Flags shared by all training programs, in the order of --help.
void add_shared(FlagTable& flags, TrainerConfig& config) {
  detail::add_training_flags(flags, config);
  detail::add_recipe_flags(flags, config);
  detail::add_augment_flag(flags, config);
  detail::add_weight_flags(flags, config);
  detail::add_cadence_flags(flags, config);
  detail::add_data_flags(flags, config);
  detail::add_machine_flags(flags, config);
  detail::add_rank_flags(flags, config);
  detail::add_report_flags(flags, config);
  detail::add_logger_flags(flags, config);
  detail::add_finder_flags(flags, config);
}

/// Custom flags of the program.
void add_own(FlagTable& flags, const TrainerConfig& config, const Flags& own) {
  flags.group(config.program);
  for (const Flags::Flag& flag : own.all()) {
    ATH_CHECK(!flags.has(flag.name),
              "flags: all training programs have {}; {} must give its own flag another name", flag.name,
              config.program);
    flags.add_own(flag);
  }
}

/// An environment variable; empty if unset.
std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

/// The folder for a program's run folders; empty: none.
std::filesystem::path runs_of(const std::string& program) {
  const std::string root = variable("ATHANOR_RUNS_DIR");
  if (root == "none") return {};
  return std::filesystem::path(root.empty() ? "runs" : root) / program;
}

/// Sets the origin of a flag's value that was not on the command line.
void set_source(std::vector<FlagValue>& flags, const std::string& name, const std::string& from) {
  for (FlagValue& flag : flags) {
    if (flag.name == name && flag.from == "default") flag.from = from;
  }
}

/// CommunicatorOptions::compare_calls, for debugging: a variable, so that the failing command need not be
/// changed.
bool compare_calls() {
  const std::string value = variable("ATHANOR_DIST_DEBUG");
  ATH_CHECK(value.empty() || value == "0" || value == "1", "ATHANOR_DIST_DEBUG: must be 0 or 1, but is '{}'",
            value);
  return value == "1";
}

/// "--epochs", "--max-epochs", ...
std::vector<std::string> names_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  return names;
}

/// Flags without a value.
std::vector<std::string> switches_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() > 0) continue;
    for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
  }
  return names;
}

/// Refuses "epochs=3", as other programs take it.
void refuse_missing_dashes(const CLI::App& app, const std::string& program, const std::string& word) {
  const std::vector<std::string> names = names_of(app);
  const std::size_t equals = word.find('=');
  if (equals == word.npos) return;
  const std::string theirs = "--" + word.substr(0, equals);
  const std::string name = translate_flags({theirs}, names).front();
  ATH_CHECK(std::find(names.begin(), names.end(), name.substr(0, name.find('='))) == names.end(),
            "{}: flags begin with --, but got '{}'; did you mean '--{}'?", program, word, word);
  const std::string answer = flag_advice(theirs);
  ATH_CHECK(answer.empty(), "{}: there is no flag '{}': {}; see --help", program, theirs, answer);
}

/// Refuses a word that belongs to no flag.
void refuse_word(const CLI::App& app, const std::string& program, const std::string& word) {
  refuse_missing_dashes(app, program, word);
  std::error_code ignored;
  ATH_CHECK(word.find_first_not_of("0123456789.,eE+-") != word.npos || std::filesystem::exists(word, ignored),
            "{}: '{}' belongs to no flag, each of which takes at most one value; see --help", program, word);
  const CLI::Option* const photos = app.get_option_no_throw("PHOTOS");
  const std::string first = photos && photos->count() > 0 ? photos->results().front() : "";
  const auto content = [](const std::string& folder) {
    return terminal::quoted((std::filesystem::absolute(folder) / ".").string());
  };
  ATH_CHECK(first.empty(), "{}: takes one set of photos, but got '{}' and '{}'{}", program, first, word,
            std::filesystem::is_directory(first, ignored)
                ? fmt::format("; to train on both, join them: mkdir both && cp -rs {} {} both",
                              content(first), content(word))
                : "");
  detail::fail<>("{}: takes only flags, but got '{}'; see --help", program, word);
}

/// Refuses leftovers: an unknown flag, or a word that belongs to no flag.
void refuse_extras(const CLI::App& app, const std::string& program) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  if (!extras[0].starts_with("-")) refuse_word(app, program, extras[0]);
  const std::string name = extras[0].substr(0, extras[0].find('='));
  const std::string answer = flag_advice(name);
  detail::fail<>("{}: there is no flag '{}'{}; see --help", program, name,
                 answer.empty() ? did_you_mean(name, names_of(app)) : ": " + answer);
}

/// A flag takes the next word as its value, unless that is a flag.
void refuse_missing_values(const CLI::App& app, const std::vector<std::string>& words) {
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    const CLI::Option* const option =
        words[i].starts_with("--") ? app.get_option_no_throw(words[i]) : nullptr;
    ATH_CHECK(!option || option->get_items_expected_min() == 0 || !words[i + 1].starts_with("--"),
              "{}: needs a value, but is followed by {}", words[i], words[i + 1]);
    if (option && option->get_items_expected_min() > 0) ++i;
  }
}

/// Of two values one would be dropped without a word. `where` begins the message.
void refuse_repeated(const CLI::App& app, const std::vector<std::string>& words,
                     const std::string& where = "") {
  std::vector<const CLI::Option*> given;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string name = words[i].substr(0, words[i].find('='));
    const CLI::Option* const option = name.starts_with("--") ? app.get_option_no_throw(name) : nullptr;
    if (!option) continue;
    ATH_CHECK(option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
                  std::find(given.begin(), given.end(), option) == given.end(),
              "{}{}: must be given once, but is given twice", where, name);
    given.push_back(option);
    if (name == words[i] && option->get_items_expected_min() > 0) ++i;  // its value
  }
}

/// The value of --recipe on the command line; empty if missing.
std::string recipe_of(const std::vector<std::string>& words) {
  std::string recipe;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--recipe=")) recipe = words[i].substr(9);
    if (words[i] == "--recipe" && i + 1 < words.size()) recipe = words[i + 1];
  }
  return recipe;
}

/// A recipe's flags not set on the command line, as words to prepend to it.
std::vector<std::string> words_of_recipe(const CLI::App& app, const std::string& recipe,
                                         const std::vector<std::string>& words,
                                         std::vector<std::string>& set) {
  const auto said = [&](const CLI::Option& option) {
    return std::any_of(words.begin(), words.end(), [&](const std::string& word) {
      return word.starts_with("--") && option.check_lname(word.substr(2, word.find('=') - 2));
    });
  };
  // Flags with the same meaning: setting one on the command line overrides the other in the recipe.
  static constexpr std::pair<const char*, const char*> kTwins[]{{"--detect-anomaly", "--nan-policy"}};
  const auto twin_said = [&](const std::string& name) {
    return std::any_of(std::begin(kTwins), std::end(kTwins), [&](const auto& two) {
      return (name == two.first && said(*app.get_option(two.second))) ||
             (name == two.second && said(*app.get_option(two.first)));
    });
  };
  std::vector<std::string> more;
  for (const RecipeFlag& flag : read_recipe(recipe)) {
    const CLI::Option* const option = app.get_option_no_throw(flag.name);
    ATH_CHECK(option && flag.name != "--recipe" && flag.name != "--help",
              "--recipe {}: there is no flag '{}'{}; see --help", recipe, flag.name.substr(2),
              did_you_mean(flag.name, names_of(app)));
    if (said(*option) || twin_said(flag.name)) continue;
    set.push_back(flag.name);
    const bool is_switch = option->get_items_expected_max() == 0;
    for (const std::string& value : flag.values) {
      ATH_CHECK(!is_switch || value == "true" || value == "false",
                "--recipe {}: {} must be true or false, but is '{}'", recipe, flag.name.substr(2), value);
      if (is_switch && value == "true") more.push_back(flag.name);
      if (!is_switch) more.push_back(flag.name + "=" + value);
    }
  }
  refuse_repeated(app, more, fmt::format("--recipe {}: ", recipe));
  return more;
}

/// The text of --help: of headings that contain the word after it, or of all.
std::string help_of(const CLI::App& app, const std::vector<std::string>& words) {
  const auto lower = [](std::string text) {
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text;
  };
  const std::string all = app.help();
  std::string subject, subjects;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if ((words[i] == "--help" || words[i] == "-h") && !words[i + 1].starts_with("-"))
      subject = lower(words[i + 1]);
  }
  for (const std::string& group : app.get_groups()) {
    if (group.empty() || group == "Options") continue;
    if (!subject.empty() && lower(group).find(subject) != std::string::npos) {
      const std::size_t begin = all.find("\n" + group + ":\n") + 1;
      return all.substr(begin, all.find("\n\n", begin) + 1 - begin);
    }
    subjects += (subjects.empty() ? "" : "; ") + lower(group);
  }
  ATH_CHECK(subject.empty(), "--help {}: must be a word of one of these subjects: {}", subject, subjects);
  return all + '\n' +
         terminal::wrapped("--help WORD shows one subject alone: " + subjects, terminal::kColumns, 0) + '\n';
}

/// Alone, --monitor is an early stop without patience; beside an --early-stop of the same metric it is
/// nothing.
void combine_monitor(TrainerConfig& config, bool stops_early) {
  if (!stops_early) {
    config.early_stop = std::exchange(config.monitor, std::nullopt);
  } else if (config.monitor->metric == config.early_stop->metric) {
    ATH_CHECK(
        !config.monitor->goal || config.monitor->goal_or_default() == config.early_stop->goal_or_default(),
        "--monitor: must ask for the same of {} as --early-stop does, but one says min and one max",
        config.monitor->metric);
    config.monitor.reset();
  }
}

/// Checks combinations of flags.
void check_together(const FlagTable& flags, TrainerConfig& config) {
  // The validation images must stay the same.
  if (!config.photos.empty() && config.val_data.empty())
    config.own_flags.push_back({"--val-split", fmt::format("{}", config.val_split)});
  ATH_CHECK(config.photos.empty() || config.train_data.empty(),
            "--train: cannot be combined with PHOTOS, which also names the training images");
  ATH_CHECK(!flags.given("--detect-anomaly") || !flags.given("--nan-policy"),
            "--nan-policy: cannot be combined with --detect-anomaly, which means --nan-policy stop");
  if (flags.given("--monitor")) combine_monitor(config, flags.given("--early-stop"));
}

}  // namespace

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config) {
  return parse_flags(argc, argv, std::move(config), {});
}

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config, const Flags& own) {
  const std::string data_folder = variable("ATHANOR_DATA_DIR");
  if (config.data_dir.empty()) {
    config.data_dir =
        data_folder.empty() ? "data-cache" : data_folder;  // where scripts/get_data.sh stores data
  }
  config.collectives.compare_calls |= compare_calls();
  if (config.run_dir.empty() && config.run_root.empty()) config.run_root = runs_of(config.program);
  config.command.assign(argv, argv + argc);
  CLI::App app(
      "Trains a model. Without a separate test set, the validation images also serve as\nthe test set. With "
      "--early-stop they choose the weights as well, which makes\nval_loss and val_accuracy optimistic.",
      config.program);
  app.allow_extras();
  app.set_help_flag("-h,--help,--help-all", "Print this help message and exit");
  app.set_version_flag("--version", version_line(config.program), "Print the version and exit");
  FlagTable flags(app);
  add_shared(flags, config);
  add_own(flags, config, own);
  std::vector<std::string> words =
      translate_flags({argv + std::min(argc, 1), argv + argc}, names_of(app), switches_of(app));
  refuse_missing_values(app, words);
  refuse_repeated(app, words);
  const std::string recipe = recipe_of(words);
  std::vector<std::string> by_recipe;
  if (!recipe.empty()) {
    const std::vector<std::string> more = words_of_recipe(app, recipe, words, by_recipe);
    words.insert(words.begin(), more.begin(), more.end());
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested(help_of(app, words));
  } catch (const CLI::CallForVersion&) {
    throw HelpRequested(app.version() + '\n');
  } catch (const CLI::ParseError& error) {
    std::string line = error.what();
    std::replace(line.begin(), line.end(), '\n', ' ');
    detail::fail<>("{}: {}; see --help", config.program, line);
  }
  if (std::error_code ignored; !std::filesystem::exists(config.photos, ignored))
    refuse_missing_dashes(app, config.program, config.photos.string());
  refuse_extras(app, config.program);
  for (const Flags::Flag& flag : own.all()) {
    if (flag.text) config.own_flags.push_back({flag.name, flag.text()});
  }
  detail::fit_to_optimizer(flags, config);
  check_together(flags, config);
  config.flags = flags.values();
  for (FlagValue& flag : config.flags) {
    if (std::find(by_recipe.begin(), by_recipe.end(), flag.name) != by_recipe.end()) flag.from = recipe;
  }
  if (!data_folder.empty()) set_source(config.flags, "--data-dir", "ATHANOR_DATA_DIR");
  if (config.fast_dev_run > 0 && config.resume.empty()) detail::leave_nothing_behind(config);
  detail::fit_to_question(flags, config);
  if (!config.validate_only) config = in_run_dir(std::move(config));
  check(config);
  return config;
}

}  // namespace athanor
