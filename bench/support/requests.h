#pragma once

#include <algorithm>
#include <exception>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>

#include <fmt/format.h>

namespace athanor::bench {

/// A worker's side of the protocol in bench/peers/README.md: prints `about`, a line of JSON, then for each
/// line "CASE VARIANT [SECONDS]" of the input what answer() returns, or what it throws as {"error"}. Returns
/// main()'s exit code.
inline int answer_requests(
    const std::string& about, double usual_seconds,
    const std::function<std::string(const std::string& name, const std::string& variant, double seconds)>&
        answer) {
  std::cout << about << std::endl;
  for (std::string line, name, variant; std::getline(std::cin, line);) {
    std::istringstream words(line);
    words >> name >> variant;
    double seconds = 0;
    if (!(words >> seconds)) seconds = usual_seconds;
    try {
      std::cout << answer(name, variant, seconds) << std::endl;
    } catch (const std::exception& error) {  // data that is not here, memory
      std::string what = error.what();
      const auto escapes = [](char c) { return c == '"' || c == '\\' || c == '\n'; };
      std::replace_if(what.begin(), what.end(), escapes, ' ');
      std::cout << fmt::format(R"({{"error":"{}"}})", what) << std::endl;
    }
  }
  return 0;
}

}  // namespace athanor::bench
