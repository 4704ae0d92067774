// Arbitrary bytes as a packed file: read it or throw IoError. A mutated byte hardly ever gets past a CRC, so
// that the first byte of the input says which CRCs are made to fit before the reader sees them.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "data/formats/crc32c.h"
#include "data/formats/detail/packed_layout.h"
#include "data/formats/packed.h"
#include "tensor/base/error.h"

namespace {

using namespace athanor;

enum Fix : unsigned { kHeader = 1, kFooter = 2, kTail = 4, kCheck = 8, kRead = 16 };

void put_u32(std::byte* at, std::uint32_t value) {
  for (int i = 0; i < 4; ++i) at[i] = static_cast<std::byte>(value >> 8 * i);
}

/// Makes header and footer fit what is there, as far as it has places for them.
void fix(std::vector<std::byte>& file, unsigned what) {
  if (file.size() < packed::kHeaderBytes + packed::kFooterBytes) return;
  const auto head = std::span<std::byte, packed::kHeaderBytes>(file.data(), packed::kHeaderBytes);
  std::byte* const end = file.data() + file.size() - packed::kFooterBytes;
  if ((what & kHeader) != 0) put_u32(head.data() + packed::kHeaderBytes - 4, packed::own_crc(head));
  if ((what & kFooter) == 0) return;
  packed::Footer footer = packed::decode_footer(std::span<const std::byte, packed::kFooterBytes>(end, 64));
  footer.header_crc = crc32c(head);
  const packed::Header header = packed::decode_header(head);
  const auto crc = [&](std::uint64_t from, std::uint64_t to) {
    return from <= to && to <= file.size() ? crc32c(std::span(file).subspan(from, to - from)) : 0;
  };
  if ((what & kTail) != 0) {
    footer.index_offset = header.index_offset();
    footer.names_offset = header.names_offset();
    footer.page_crcs_offset = header.page_crcs_offset();
    footer.file_bytes = header.file_bytes();
    footer.index_crc = crc(header.index_offset(), header.names_offset());
    footer.names_crc = crc(header.names_offset(), header.page_crcs_offset());
    footer.page_crcs_crc = crc(header.page_crcs_offset(), header.footer_offset());
  }
  std::ranges::copy(packed::encode(footer), end);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const unsigned what = data[0];
  std::vector<std::byte> file(size - 1);
  std::copy_n(reinterpret_cast<const std::byte*>(data) + 1, file.size(), file.begin());
  fix(file, what);

  static const int memory = ::memfd_create("packed_fuzz", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(memory);
  if (::ftruncate(memory, 0) != 0 || ::pwrite(memory, file.data(), file.size(), 0) < 0) std::abort();
  try {
    const PackedAccess access = (what & kRead) != 0 ? PackedAccess::read : PackedAccess::map;
    const PackedStore store(path, {(what & kCheck) != 0, access});
    std::vector<std::byte> scratch;
    std::uint32_t all = 0;
    for (std::int64_t i = 0; i < store.size(); ++i) {
      try {
        const StoredSample sample = store.fetch(i, scratch);
        all = crc32c(sample.bytes, all);  // every byte must be there
        for (const StoredField& field : sample.more) all = crc32c(field.bytes, all);
        if (sample.codec == Codec::raw &&
            sample.height * sample.width * sample.channels != std::ssize(sample.bytes)) {
          std::abort();
        }
        const bool labelled = store.spec().classes > 0;
        if (labelled && (sample.label < 0 || sample.label >= store.spec().classes)) std::abort();
      } catch (const IoError&) {
      }
    }
    store.will_need(0, store.size());
    for (const Damage& damage : store.verify()) {
      if (damage.offset < 0 || damage.offset + damage.length > store.file_bytes()) std::abort();
    }
  } catch (const IoError&) {
  }
  return 0;
}
