#include "data/formats/raw.h"
#include "fuzz.h"

using namespace athanor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_parts(fuzz::text_of(data, size), 3);
  fuzz::put("x.json", parts[0]);
  fuzz::put("x.labels.bin", parts[1]);
  const auto file = fuzz::put("x.bin", parts[2]);
  fuzz::read_all([&] { return open_raw(file); });
  return 0;
}
