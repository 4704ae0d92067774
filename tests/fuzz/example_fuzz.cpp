#include "data/formats/example.h"
#include "fuzz.h"

using namespace athanor;

/// What was read and written again reads as the same bytes once more.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const auto once = write_example(read_example({reinterpret_cast<const std::byte*>(data), size}));
    if (write_example(read_example(std::as_bytes(std::span(once)))) != once) std::abort();
  } catch (const IoError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
