#include "data/formats/tar.h"
#include "fuzz.h"

using namespace athanor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = fuzz::put("a.tar", fuzz::text_of(data, size));
  fuzz::read_all([&] { return open_tar(file); });
  return 0;
}
