#include "examples/athanor_tool/flight_report.h"
#include "fuzz.h"

using namespace athanor;

/// Three ranks' records: what is read and concluded is text that a terminal may be shown.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_parts(fuzz::text_of(data, size), 3);
  for (std::size_t rank = 0; rank < parts.size(); ++rank)
    fuzz::put(dist::record_file({}, static_cast<int>(rank)).c_str(), parts[rank]);
  const auto check = [](const std::string& text) {
    for (const char c : text) {
      if (c != '\n' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) std::abort();
    }
  };
  try {
    check(tool::read_flight(fuzz::folder()).str());
  } catch (const IoError& error) {
    check(error.what());
  }
  return 0;
}
