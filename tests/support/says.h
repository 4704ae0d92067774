#pragma once

#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "tensor/error.h"

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

}  // namespace athanor::test

/// The expression throws an ArgumentError whose message holds the text.
#define EXPECT_SAYS(expression, text)                                                     \
  EXPECT_NE(athanor::test::message_of([&] { expression; }).find(text), std::string::npos) \
      << athanor::test::message_of([&] { expression; })
