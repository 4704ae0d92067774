#include "data/formats/cifar.h"
#include "fuzz.h"

using namespace athanor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto file = fuzz::put("c.bin", fuzz::text_of(data + 1, size - 1));
  fuzz::read_all([&] { return open_cifar(file, data[0] % 2 ? 10 : 100); });
  return 0;
}
