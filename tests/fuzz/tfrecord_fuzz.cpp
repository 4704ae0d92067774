#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/tfrecord.h"
#include "fuzz.h"

using namespace athanor;

namespace {

std::string masked_crc(std::string_view text) {
  const std::uint32_t crc = crc32c(detail::bytes_of(text));
  const auto bytes = detail::stored_le(static_cast<std::uint32_t>((crc >> 15 | crc << 17) + 0xa282ead8u));
  return std::string(detail::text_of(bytes));
}

}  // namespace

/// The first byte says whether the file is as it stands, or is what one record holds, behind CRCs that are
/// right: no fuzzer guesses those.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string file(fuzz::text_of(data + 1, size - 1));
  if (data[0] % 2) {
    const std::string length(detail::text_of(detail::stored_le(std::uint64_t{file.size()})));
    file = length + masked_crc(length) + file + masked_crc(file);
  }
  const auto path = fuzz::put("a.tfrecord", file);
  fuzz::read_all([&] { return open_tfrecord(path); });
  return 0;
}
