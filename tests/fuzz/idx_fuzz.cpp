#include "data/formats/idx.h"
#include "fuzz.h"

using namespace athanor;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_parts(fuzz::text_of(data, size), 2);
  const auto images = fuzz::put("images", parts[0]);
  const auto labels = fuzz::put("labels", parts[1]);
  fuzz::read_all([&] { return open_idx(images, {.labels = labels}); });
  return 0;
}
