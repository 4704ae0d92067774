#include "trainer/flags/detail/recipe_file.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tensor/base/error.h"
#include "tensor/base/printable.h"
#include "tensor/io/atomic_file.h"
#include "trainer/flags/detail/settings_table.h"

namespace athanor {
namespace {

using detail::InRecipe;

/// "a b" as ["a", "b"].
std::string listed(std::string text) {
  for (std::size_t at = 0; (at = text.find(' ', at)) != text.npos; at += 4) text.replace(at, 1, "\", \"");
  return "[\"" + text + "\"]";
}

/// A TOML string; a string with both kinds of quotes is not supported by the reader.
std::string quoted(const std::string& text) {
  const char quote = text.find('"') == std::string::npos ? '"' : '\'';
  return quote + text + quote;
}

}  // namespace

void write_recipe(const std::filesystem::path& run_dir, const TrainerConfig& config) {
  std::string text = fmt::format("# {} --recipe FILE trains the same way again.\n", config.program);
  for (const FlagValue& flag : config.flags) {
    const detail::SettingRow* const row = detail::find_setting(flag.name);  // null: a flag of the program
    const InRecipe wanted = row ? row->recipe : InRecipe::given;
    if (wanted == InRecipe::never || (wanted == InRecipe::given && flag.from == "default")) continue;
    if (flag.value.empty() || flag.value.find('\n') != std::string::npos) continue;
    text +=
        fmt::format("{} = {}\n", flag.name.substr(2), flag.is_list ? listed(flag.value) : quoted(flag.value));
  }
  write_atomically(run_dir / "recipe.toml", text);
}

std::vector<RecipeFlag> read_recipe(const std::filesystem::path& file) {
  ATH_CHECK(!std::filesystem::is_directory(file),
            "--recipe: must be a file of flags, such as recipe.toml of a run, but {} is a folder",
            printable(file.string()));
  ATH_CHECK(std::filesystem::is_regular_file(file), "--recipe: must be a file of flags, but there is no {}",
            printable(file.string()));
  std::vector<RecipeFlag> flags;
  try {
    for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_file(file.string())) {
      if (item.name != "++" && item.name != "--") flags.push_back({"--" + item.name, item.inputs});
    }
  } catch (const CLI::Error& error) {
    detail::fail<>("--recipe {}: {}", printable(file.string()), error.what());
  }
  return flags;
}

}  // namespace athanor
