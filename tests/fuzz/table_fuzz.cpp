#include "data/formats/table.h"
#include "fuzz.h"

using namespace athanor;

// The first byte says whether the rest is CSV or JSON lines.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto table = fuzz::put(data[0] % 2 == 0 ? "x.csv" : "x.jsonl", fuzz::text_of(data + 1, size - 1));
  fuzz::read_all([&] { return open_table(table); });
  return 0;
}
