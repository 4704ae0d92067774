// What --help says, and that each flag it names is checked.
#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tensor/version.h"
#include "tests/support/errors.h"
#include "tests/support/parsed_flags.h"
#include "trainer/config.h"

namespace athanor::flags_help_test {

using test::parse;
using test::refusal;

TEST(Flags, HelpNamesEveryFlag) {
  try {
    parse({"--help"});
    FAIL();
  } catch (const HelpRequested& help) {
    const std::string text = help.what();
    for (const char* flag : {"--model",          "--epochs",       "--max-steps",      "--batch-size",
                             "--val-batch-size", "--lr",           "--threads",        "--precision",
                             "--device",         "--devices",      "--strategy",       "--workers",
                             "--data-dir",       "--seed",         "--deterministic",  "--accumulate",
                             "--clip-norm",      "--early-stop",   "--checkpoint-dir", "--checkpoint-every",
                             "--resume",         "--pretrained",   "--profile",        "--metrics",
                             "--forbid-sync",    "--fast-dev-run", "--memory-limit",   "--prefetch",
                             "--bad-samples",    "--order",        "--data-on-device", "--help"}) {
      EXPECT_NE(text.find(flag), std::string::npos) << flag;
    }
    for (const char* flag : {"--fused", "--inference-mode", "--empty-cache", "--sync-each-step"})
      EXPECT_NE(text.find(flag), std::string::npos) << flag;
  }
}

TEST(Flags, VersionNamesTheProgramAndItsVersion) {
  try {
    parse({"--version"});
    FAIL();
  } catch (const HelpRequested& answer) {
    EXPECT_NE(std::string(answer.what()).find(std::string("(Athanor) ") + version()), std::string::npos)
        << answer.what();
  }
}

std::string help() {
  try {
    parse({"--help"});
  } catch (const HelpRequested& asked) {
    return asked.what();
  }
  return {};
}

/// "--epochs", and what --help calls its value: "N". Of all flags that take one.
std::vector<std::pair<std::string, std::string>> flags_with_values() {
  std::vector<std::pair<std::string, std::string>> flags;
  std::istringstream lines(help());
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("  --")) continue;
    std::istringstream words(line);
    std::string names, value;
    words >> names >> value;
    if (!value.empty() && value.find_first_of("abcdefghijklmnopqrstuvwxyz") == std::string::npos)
      flags.emplace_back(names.substr(0, names.find(',')), value);
  }
  return flags;
}

// Neither wraps around, becomes 0 on the way to f32, nor ends in another flag's name, or in none.
TEST(Flags, InvalidNumbersAreRejectedByName) {
  const std::vector<std::string> texts{"NAME", "DIR", "PATH", "P",    "T",      "D",    "S",
                                       "A",    "O",   "FILE", "KIND", "METRIC", "WHAT", "LIST"};
  int numeric = 0;
  for (const auto& [flag, shown] : flags_with_values()) {
    SCOPED_TRACE(flag);
    const bool text = std::find(texts.begin(), texts.end(), shown) != texts.end() && flag != "--loss-scale";
    if (text) continue;
    ++numeric;
    const std::string before = shown == "METRIC:PATIENCE"   ? "val_loss:"
                               : shown == "POLICY"          ? "skip:"
                               : shown == "PREFIX[:EPOCHS]" ? "layer1:"
                               : shown == "B1,B2"           ? "0.9,"
                               : shown == "RULE:BATCH"      ? "linear:"
                                                            : "";
    for (const std::string value : {"9223372036854775807", "1e-320"}) {
      const std::string message = refusal({flag, before + value, "--checkpoint-dir", "x"});
      // As good a seed as any; and a rate that is too high is found out by training, which names the flag.
      if (value[0] == '9' && (flag == "--seed" || flag == "--lr")) {
        EXPECT_EQ(message, "");
        continue;
      }
      EXPECT_TRUE(message.starts_with(flag + ": ")) << message;
      EXPECT_TRUE(test::names(message, {flag}));
    }
  }
  EXPECT_EQ(numeric, 39);
}

TEST(Flags, HelpFitsATerminal) {
  std::istringstream lines(help());
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) EXPECT_LE(line.size(), 80u) << line;
  EXPECT_GT(count, 50);
}

/// As one line, however it is wrapped.
std::string unwrapped(const std::string& text) {
  std::string all;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\n';
    if (!space || !all.ends_with(' ')) all += space ? ' ' : c;
  }
  return all;
}

TEST(Flags, HelpNamesTheValueOfAFlag) {
  const std::string text = unwrapped(help());
  for (const char* value : {"--max-time TIME", "ddp:", "zero1:", "--algorithm A", "--dist-timeout SECONDS",
                            "--max-restarts N", "--flight-dir DIR"})
    EXPECT_TRUE(test::holds(text, value)) << value << " in: " << text;
}

TEST(Flags, HelpOfOneSubject) {
  const auto help_with = [](const std::vector<std::string>& arguments) -> std::string {
    try {
      parse(arguments);
    } catch (const HelpRequested& help) {
      return help.what();
    }
    return "";
  };
  const std::string all = help_with({"--help-all"}), recipe = help_with({"--help", "recipe"});
  EXPECT_NE(all.find("--devices"), std::string::npos);
  EXPECT_TRUE(recipe.starts_with("Recipe:\n"));
  EXPECT_NE(recipe.find("--optimizer"), std::string::npos);
  EXPECT_EQ(recipe.find("--devices"), std::string::npos);
  EXPECT_LE(std::count(recipe.begin(), recipe.end(), '\n'), 60);
  EXPECT_TRUE(help_with({"-h", "Several"}).starts_with("Several devices:\n"));
  EXPECT_ERROR(ArgumentError, parse({"--help", "tricks"}), "--help tricks", "training", "recipe");
}

}  // namespace athanor::flags_help_test
