#include "data/formats/hdf5.h"
#include "fuzz.h"

using namespace athanor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = fuzz::put("a.h5", fuzz::text_of(data, size));
  fuzz::read_all([&] { return open_hdf5(file); });
  return 0;
}
