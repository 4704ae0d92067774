#pragma once

#include <cctype>
#include <functional>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "tensor/base/error.h"

// What tests ask of an error: its type, and the values it names (the op, the flag, the file, the shape, the
// number). How the sentence around them reads does not matter here: tests/words checks words.

namespace athanor::test {

/// What the error of that kind says that `run` throws; empty where it throws none.
template <class Kind = ArgumentError> std::string message_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

/// Whether the text holds the value as a word of its own: "3" is not in "13", "3.5", "0.3" or "-3", and
/// "--lr" not in "--lr-scale".
inline bool holds(std::string_view text, std::string_view value) {
  const auto joins = [](char a, char b) {  // b after a continues a word
    const auto word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
    return word(a) && word(b);
  };
  const auto digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  if (value.empty()) return true;
  for (auto at = text.find(value); at != text.npos; at = text.find(value, at + 1)) {
    const std::string_view before = text.substr(0, at), after = text.substr(at + value.size());
    if (!before.empty() && joins(before.back(), value.front())) continue;
    if (digit(value.front()) && !before.empty()) {
      const char second = before.size() > 1 ? before[before.size() - 2] : ' ';
      if (before.back() == '.' && digit(second)) continue;
      if (before.back() == '-' && !joins(second, '0')) continue;  // a sign, not a range
    }
    if (!after.empty() && joins(value.back(), after.front())) continue;
    if (after.size() > 1 && (after[0] == '.' || after[0] == '-') && joins(value.back(), after[1])) continue;
    return true;
  }
  return false;
}

/// The text is one line that names each of the values.
template <class Values = std::initializer_list<std::string_view>>
testing::AssertionResult names(const std::string& text, const Values& values) {
  if (text.empty()) return testing::AssertionFailure() << "no such error";
  if (text.find('\n') != text.npos) return testing::AssertionFailure() << "more than one line: " << text;
  for (const std::string_view value : values) {
    if (!holds(text, value))
      return testing::AssertionFailure() << "'" << value << "' is not named in: " << text;
  }
  return testing::AssertionSuccess();
}

/// One of the text's lines names each of the values.
template <class Values = std::initializer_list<std::string_view>>
testing::AssertionResult has_line(const std::string& text, const Values& values) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (names(line, values)) return testing::AssertionSuccess();
  }
  testing::AssertionResult none = testing::AssertionFailure() << "no line names";
  for (const std::string_view value : values) none << " '" << value << "'";
  return none << " in: " << text;
}

/// What an expression calls first, without its namespaces: conv2d in "nn::conv2d(x, w)".
constexpr std::string_view called_in(std::string_view expression) {
  expression = expression.substr(0, expression.find_first_of("({<"));
  const auto scope = expression.rfind(':');
  return scope == expression.npos ? expression : expression.substr(scope + 1);
}

}  // namespace athanor::test

/// The expression throws an error of that kind, one line that names the values:
///     EXPECT_ERROR(ArgumentError, relu(x), "relu", "i64");
#define EXPECT_ERROR(Kind, expression, ...) \
  EXPECT_TRUE(                              \
      athanor::test::names(athanor::test::message_of<Kind>([&] { (void)(expression); }), {__VA_ARGS__}))

/// A call with arguments that the op does not take throws an ArgumentError that names the op and the values:
///     EXPECT_REFUSED(relu(x), "i64");
#define EXPECT_REFUSED(call, ...) \
  EXPECT_ERROR(ArgumentError, call, athanor::test::called_in(#call) __VA_OPT__(, ) __VA_ARGS__)
