#include "trainer/flags/detail/recipe_file.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tensor/atomic_file.h"
#include "tensor/error.h"
#include "tensor/printable.h"

namespace athanor {
namespace {

// Always written: another version or program may have other defaults.
constexpr std::array kAlways{"--model",    "--epochs",          "--batch-size",   "--accumulate",
                             "--seed",     "--optimizer",       "--lr",           "--momentum",
                             "--nesterov", "--betas",           "--weight-decay", "--decay",
                             "--schedule", "--label-smoothing", "--augment",      "--precision"};
// Specific to one run or machine.
constexpr std::array kNever{"--recipe",        "--resume",       "--run-dir",     "--checkpoint-dir",
                            "--metrics",       "--flight-dir",   "--data-dir",    "PHOTOS",
                            "--train",         "--val",          "--test",        "--threads",
                            "--workers",       "--device",       "--devices",     "--fast-dev-run",
                            "--validate-only", "--memory-limit", "--max-restarts"};

bool holds(std::span<const char* const> names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view one) { return one == name; });
}

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
    const bool given = flag.from != "default";
    if (holds(kNever, flag.name) || (!given && !holds(kAlways, flag.name)) || flag.value.empty() ||
        flag.value.find('\n') != std::string::npos)
      continue;
    text +=
        fmt::format("{} = {}\n", flag.name.substr(2), flag.is_list ? listed(flag.value) : quoted(flag.value));
  }
  AtomicFile file(run_dir / "recipe.toml");
  file.write(std::as_bytes(std::span(text)));
  file.commit();
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
