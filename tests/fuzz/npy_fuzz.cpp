#include "data/formats/npy.h"
#include "fuzz.h"

using namespace athanor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_parts(fuzz::text_of(data, size), 2);
  const auto images = fuzz::put("x.npy", parts[0]);
  fuzz::put("y.npy", parts[1]);
  fuzz::read_all([&] { return open_npy(images); });
  return 0;
}
