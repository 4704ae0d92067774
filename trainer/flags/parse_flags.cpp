// Parses a program's arguments, recipe and environment into its config.

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/ranges.h>

#include "tensor/base/nearest.h"
#include "trainer/detail/terminal.h"
#include "trainer/flags/detail/recipe_file.h"
#include "trainer/flags/detail/rules.h"
#include "trainer/flags/detail/settings_table.h"
#include "trainer/flags/detail/spellings.h"
#include "trainer/flags/flags.h"
#include "trainer/run_main.h"

namespace athanor {
namespace {

using detail::SettingGroup;
using detail::SettingRow;
using detail::Takes;

/// Declares a flag; error messages are our own, and CLI11 only splits and matches arguments.
void declare(CLI::App& app, const std::string& heading, const SettingRow& row, TrainerConfig& config) {
  constexpr int kHelpColumns = terminal::kColumns - 30;  // after the names
  const std::string help = terminal::wrapped(row.help_of(config), kHelpColumns, 0);
  const auto take = [&](const CLI::results_t& texts) {
    refuse_value(row.name(), texts[0]);
    row.value.read(config, row.name(), fmt::format("{}", fmt::join(texts, " ")));
    return true;
  };
  CLI::Option* const option =
      app.add_option(row.names(), take, help)->type_name(row.value_name())->group(heading);
  const bool several = row.takes == Takes::values;
  option->multi_option_policy(several ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::TakeLast);
  // Alone it is "true"; a value follows in the same word: "--summary=false".
  if (row.takes == Takes::nothing || row.takes == Takes::optional) option->expected(0)->default_str("");
}

/// The program's rows of the table: those it offers, and its own.
std::vector<SettingGroup> rows_of(const TrainerConfig& config, const Flags& own) {
  std::vector<SettingGroup> groups;
  for (const SettingGroup& shared : detail::settings_table()) {
    if (shared.heading.empty()) continue;
    SettingGroup& group = groups.emplace_back(SettingGroup{shared.heading, {}});
    std::copy_if(shared.rows.begin(), shared.rows.end(), std::back_inserter(group.rows),
                 [&](const SettingRow& row) { return row.is_offered(config); });
  }
  SettingGroup& last = groups.emplace_back(SettingGroup{config.program, {}});
  for (const Flags::Flag& flag : own.all()) {
    detail::SettingValue value = detail::fields(
        [&flag](TrainerConfig&, const std::string& name, const std::string& text) { flag.read(name, text); },
        [&flag](const TrainerConfig&) { return flag.print(); });
    value.as_is = true;
    last.rows.push_back(detail::flag(flag.usage, flag.help, std::move(value)));
  }
  return groups;
}

void declare(CLI::App& app, const std::vector<SettingGroup>& groups, TrainerConfig& config) {
  for (const SettingGroup& group : groups) {
    for (const SettingRow& row : group.rows) {
      ATH_CHECK(!app.get_option_no_throw(row.name()),
                "flags: all training programs have {}; {} must give its own flag another name", row.name(),
                config.program);
      declare(app, group.heading, row, config);
    }
  }
}

/// All flags after parsing, for config.json.
std::vector<FlagValue> values_of(const CLI::App& app, const std::vector<SettingGroup>& groups,
                                 const TrainerConfig& config) {
  std::vector<FlagValue> values;
  for (const SettingGroup& group : groups) {
    for (const SettingRow& row : group.rows) {
      const CLI::Option* const option = app.get_option(row.name());
      const bool given = option->count() > 0, is_list = row.takes == Takes::values;
      const std::string value = !given    ? row.standard(config)
                                : is_list ? fmt::format("{}", fmt::join(option->results(), " "))
                                          : option->results().back();
      values.push_back({row.name(), value, given ? "flag" : "default", is_list});
    }
  }
  return values;
}

/// An environment variable; empty if unset.
std::string variable(const char* name) {
  const char* const text = std::getenv(name);
  return text ? text : "";
}

/// Defaults that depend on the environment and the machine.
void fill_defaults(TrainerConfig& config) {
  if (config.data_dir.empty()) {
    const std::string folder = variable("ATHANOR_DATA_DIR");
    config.data_dir = folder.empty() ? "data-cache" : folder;  // where scripts/get_data.sh stores data
  }
  const std::string debug =
      variable("ATHANOR_DIST_DEBUG");  // so that the failing command need not be changed
  ATH_CHECK(debug.empty() || debug == "0" || debug == "1", "ATHANOR_DIST_DEBUG: must be 0 or 1, but is '{}'",
            debug);
  config.collectives.compare_calls |= debug == "1";
  const std::string root = variable("ATHANOR_RUNS_DIR");
  if (config.run_dir.empty() && config.run_root.empty() && root != "none")
    config.run_root = std::filesystem::path(root.empty() ? "runs" : root) / config.program;
  if (config.device == kCpu) {
    const auto [device, note] = read_flag::device("--device", "auto");
    config.device = device;
    config.device_note = note;
  }
}

/// "--epochs", "--max-epochs", ...; or only those without a value.
std::vector<std::string> names_of(const CLI::App& app, bool only_switches = false) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (only_switches && option->get_items_expected_max() > 0) continue;
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
                : "; the files of one set are named by a pattern in quotes, or with commas between them");
  detail::fail<>("{}: takes only flags, but got '{}'; see --help", program, word);
}

/// Refuses leftovers: unknown flags, all at once, or a word that belongs to no flag.
void refuse_extras(const CLI::App& app, const std::string& program) {
  const std::vector<std::string> extras = app.remaining();
  if (extras.empty()) return;
  if (!extras[0].starts_with("-")) refuse_word(app, program, extras[0]);
  std::vector<std::string> unknown;
  for (const std::string& word : extras) {
    // Others are their values: "--foo 3 --bar -1".
    const bool is_flag =
        word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1]));
    if (!is_flag && !unknown.empty()) continue;
    const std::string name = word.substr(0, word.find('=')), answer = flag_advice(name);
    std::string line =
        fmt::format("'{}'{}", name, answer.empty() ? did_you_mean(name, names_of(app)) : ": " + answer);
    if (std::find(unknown.begin(), unknown.end(), line) == unknown.end()) unknown.push_back(std::move(line));
  }
  detail::fail<>("{}: there is no flag {}; see --help", program, fmt::join(unknown, "; no flag "));
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
  // They mean the same, so that one on the command line overrides the other in the recipe.
  const auto same_as = [](const std::string& name) -> std::string {
    return name == "--nan-policy" ? "--detect-anomaly" : name == "--detect-anomaly" ? "--nan-policy" : name;
  };
  std::vector<std::string> more, unknown;
  for (const RecipeFlag& flag : read_recipe(recipe)) {
    const CLI::Option* const option = app.get_option_no_throw(flag.name);
    if (!option || flag.name == "--recipe" || flag.name == "--help") {
      unknown.push_back(fmt::format("'{}'{}", flag.name.substr(2), did_you_mean(flag.name, names_of(app))));
      continue;
    }
    if (said(*option) || said(*app.get_option(same_as(flag.name)))) continue;
    set.push_back(flag.name);
    const detail::SettingRow* const row = detail::find_setting(flag.name);
    const bool is_switch = option->get_items_expected_max() == 0,
               may_have_value = row && row->takes == Takes::optional;
    for (const std::string& value : flag.values) {
      const bool says_whether = value == "true" || value == "false";
      ATH_CHECK(!is_switch || may_have_value || says_whether,
                "--recipe {}: {} must be true or false, but is '{}'", recipe, flag.name.substr(2), value);
      if (!is_switch || !says_whether) {
        more.push_back(flag.name + "=" + value);
      } else if (value == "true") {
        more.push_back(flag.name);
      }
    }
  }
  ATH_CHECK(unknown.empty(), "--recipe {}: there is no flag {}; see --help", recipe,
            fmt::join(unknown, "; no flag "));
  refuse_repeated(app, more, fmt::format("--recipe {}: ", recipe));
  return more;
}

/// The text of --help: of headings that contain the word after it, or of all.
std::string help_of(const CLI::App& app, const std::vector<std::string>& words) {
  const std::string all = app.help();
  std::string subject, subjects;
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if ((words[i] == "--help" || words[i] == "-h") && !words[i + 1].starts_with("-"))
      subject = read_flag::lower_case(words[i + 1]);
  }
  for (const std::string& group : app.get_groups()) {
    if (group.empty() || group == "Options") continue;
    if (!subject.empty() && read_flag::lower_case(group).find(subject) != std::string::npos) {
      const std::size_t begin = all.find("\n" + group + ":\n") + 1;
      return all.substr(begin, all.find("\n\n", begin) + 1 - begin);
    }
    subjects += (subjects.empty() ? "" : "; ") + read_flag::lower_case(group);
  }
  ATH_CHECK(subject.empty(), "--help {}: must be a word of one of these subjects: {}", subject, subjects);
  return all + '\n' +
         terminal::wrapped("--help WORD shows one subject alone: " + subjects, terminal::kColumns, 0) + '\n';
}

}  // namespace

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config) {
  return parse_flags(argc, argv, std::move(config), {});
}

TrainerConfig parse_flags(int argc, const char* const* argv, TrainerConfig config, const Flags& own) {
  fill_defaults(config);
  const TrainerConfig defaults = config;
  config.command.assign(argv, argv + argc);
  CLI::App app(
      "Trains a model. Without a separate test set, the validation images also serve as\nthe test set. With "
      "--early-stop they choose the weights as well, which makes\nval_loss and val_accuracy optimistic.",
      config.program);
  app.allow_extras();
  app.set_help_flag("-h,--help,--help-all", "Print this help message and exit");
  app.set_version_flag("--version", version_line(config.program), "Print the version and exit");
  const std::vector<SettingGroup> groups = rows_of(config, own);
  declare(app, groups, config);
  std::vector<std::string> words =
      translate_flags({argv + std::min(argc, 1), argv + argc}, names_of(app), names_of(app, true));
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
    if (flag.compared) config.own_flags.push_back({flag.name(), flag.print()});
  }
  const auto given = [&](const std::string& name) { return app.get_option(name)->count() > 0; };
  detail::combine_flags(given, defaults, config);
  config.flags = values_of(app, groups, config);
  for (FlagValue& flag : config.flags) {
    if (std::find(by_recipe.begin(), by_recipe.end(), flag.name) != by_recipe.end()) flag.from = recipe;
    if (flag.name == "--data-dir" && flag.from == "default" && !variable("ATHANOR_DATA_DIR").empty())
      flag.from = "ATHANOR_DATA_DIR";
  }
  detail::fit_to_trial(given, config);
  if (!config.validate_only) config = in_run_dir(std::move(config));
  check(config);
  return config;
}

}  // namespace athanor
