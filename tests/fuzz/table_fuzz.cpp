#include "data/formats/crc32c.h"
#include "data/formats/table.h"
#include "fuzz.h"

using namespace athanor;

// The first byte says whether the rest is CSV or JSON lines; a.png is a file that there is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const auto image = fuzz::put("a.png", "any bytes");
  const auto path = fuzz::put(data[0] % 2 == 0 ? "x.csv" : "x.jsonl", fuzz::text_of(data + 1, size - 1));
  try {
    const auto table = open_table(path);
    if (table->size() < 1) std::abort();
    std::vector<std::byte> scratch;
    std::uint32_t all = 0;
    const std::vector<FieldSpec> fields = table->fields();
    for (std::int64_t i = 0; i < std::min<std::int64_t>(table->size(), 20); ++i) {
      (void)table->where(i);
      const StoredSample sample = table->fetch(i, scratch);
      if (sample.label < 0 || (sample.label > 0 && sample.label >= table->spec().classes)) std::abort();
      all = crc32c(sample.bytes, all);
      for (const StoredField& field : sample.more) all = crc32c(field.bytes, all);
    }
    if (all == 0xdeadbeef) (void)table->size();  // so that no read is left out
  } catch (const IoError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
