#include "trainer/flags/detail/spellings.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string_view>

#include "trainer/flags/detail/other_trainers.h"
#include "trainer/flags/detail/read_flag.h"

namespace athanor {
namespace {

using namespace other_trainers;
using Words = std::vector<std::string>;

bool has(const Words& known, const std::string& flag) {
  return std::find(known.begin(), known.end(), flag) != known.end();
}

/// With dashes, in lower case and without the sections of LightningCLI: "--trainer.max_epochs" becomes
/// "--max-epochs".
std::string dashed(std::string name) {
  if (!name.starts_with("--")) return name;
  const std::size_t dot = name.rfind('.');
  if (dot != std::string::npos) name.erase(2, dot - 1);
  std::replace(name.begin() + 2, name.end(), '_', '-');
  return read_flag::lower_case(name);
}

const Same* find_same(const std::string& flag) {
  const auto found = std::find_if(std::begin(kSame), std::end(kSame), [&](const Same& one) {
    return has(read_flag::split(std::string(one.theirs), '|'), flag);
  });
  return found == std::end(kSame) ? nullptr : &*found;
}

/// A word of the command line: a flag, and its value if that is in the same word: "--lr=1", "-b=32", or
/// "-b32" as argparse reads it.
struct Word {
  std::string flag;
  std::optional<std::string> value = {};

  explicit Word(const std::string& word) : flag(word) {
    const std::size_t equals = word.find('=');
    const bool number =
        word.size() > 2 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[2]));
    if (equals == word.npos && !number) return;
    flag = word.substr(0, equals != word.npos ? equals : 2);
    value = word.substr(equals != word.npos ? equals + 1 : 2);
  }
  /// Whether it may be another tool's flag: it begins with "--", or is a short one of the table.
  bool is_flag() const {
    return (flag.starts_with("--") && flag.size() > 2) || (flag.starts_with("-") && find_same(flag));
  }
};

/// Our name of a flag; the row of the table it is from, if any.
struct OurName {
  std::string flag;
  const Same* same = nullptr;
};
OurName our_name(const std::string& theirs, const Words& known) {
  if (has(known, theirs)) return {theirs};
  if (const std::string name = dashed(theirs); has(known, name)) return {name};
  const Same* const same = find_same(dashed(theirs));
  return same && has(known, std::string(same->ours)) ? OurName{std::string(same->ours), same}
                                                     : OurName{theirs};
}

/// Our form of the flag's value; nullopt if it is the same.
std::optional<std::string> our_value(const OurName& name, const std::string& theirs) {
  const std::string lower = read_flag::lower_case(theirs);
  for (const SameValue& one : kSameValues) {
    if (one.flag == name.flag && one.theirs == lower) return std::string(one.ours);
  }
  const bool number = !theirs.empty() && theirs.find_first_not_of("0123456789") == std::string::npos;
  if (name.flag == "--fast-dev-run" && number) return theirs;  // ours takes the value after '='
  if (!name.same || name.same->behind.empty() || theirs.empty()) return std::nullopt;
  if (name.same->only_fractions && theirs.find('.') == std::string::npos) return std::nullopt;
  return theirs + std::string(name.same->behind);
}

/// How much of `text` the longest of the patterns "--a|--b*" says that matches it; 0: none does.
std::size_t matched(std::string_view patterns, const std::string& text) {
  std::size_t longest = 0;
  for (std::string one : read_flag::split(std::string(patterns), '|')) {
    const bool open = one.ends_with('*');
    if (open) one.pop_back();
    if (open ? text.starts_with(one) : text == one) longest = std::max(longest, one.size());
  }
  return longest;
}

}  // namespace

Words translate_flags(const Words& arguments, const Words& known, const Words& switches) {
  Words ours;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    const Word word(*at);
    if (!word.is_flag()) {
      ours.push_back(*at);
      continue;
    }
    const bool apart = !word.value && at + 1 != arguments.end() && !Word(*(at + 1)).is_flag();
    const std::string value = word.value ? *word.value : apart ? *(at + 1) : "";
    const OurName name = our_name(word.flag, known);
    const std::string theirs = dashed(word.flag);
    if ((theirs == "--gpus" || theirs == "--num-gpus") && has(known, "--device")) {
      ours.emplace_back(value == "0" ? "--device=cpu" : "--device=cuda");
      if (value == "0") {
        at += apart ? 1 : 0;
        continue;
      }
    }
    const bool is_empty = word.value && value.empty();  // "--resume=$FILE" of an empty variable
    const std::optional<std::string> translated = is_empty ? std::nullopt : our_value(name, value);
    const bool yes = value == "True" || value == "true", no = value == "False" || value == "false";
    if (!translated && has(switches, name.flag) && (yes || no)) {
      if (yes) ours.push_back(name.flag);
      at += apart ? 1 : 0;
      continue;
    }
    const std::optional<std::string> joined = translated ? translated : word.value;
    ours.push_back(joined ? name.flag + "=" + *joined : name.flag);
    if (translated && apart) ++at;
  }
  return ours;
}

std::string flag_advice(const std::string& flag) {
  const std::string name = dashed(flag);
  std::string_view advice;
  std::size_t longest = 0;
  for (const Answer& answer : kAnswers) {
    const std::size_t length = matched(answer.theirs, name);
    if (length > longest) advice = answer.instead;
    longest = std::max(longest, length);
  }
  return std::string(advice);
}

void refuse_value(const std::string& flag, const std::string& value) {
  for (const RefusedValue& one : kRefusedValues)
    ATH_CHECK(one.flag != flag || matched(one.theirs, read_flag::lower_case(value)) == 0, "{} {}: {}", flag,
              value, one.instead);
}

}  // namespace athanor
