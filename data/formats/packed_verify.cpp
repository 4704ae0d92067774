#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "data/formats/crc32c.h"
#include "data/formats/detail/bytes.h"
#include "data/formats/detail/packed_layout.h"
#include "data/formats/packed.h"
#include "tensor/base/error.h"

namespace athanor {

using packed::Entry;

/// Reads page by page. A page's CRC tells whether it is damaged; the CRCs of its samples, and the zeros
/// between them, tell where.
struct PackedStore::Verifier {
  const PackedStore& store;
  const std::function<bool(std::int64_t)>& progress;

  std::atomic<std::int64_t> next_page{0};
  std::atomic<bool> stop{false};
  std::mutex mutex{};  // guards all below
  std::vector<Damage> found{};
  std::int64_t done = 0;
  std::exception_ptr error{};

  void work() {
    try {
      std::vector<std::byte> buffer;
      const auto pages = static_cast<std::int64_t>(store.header_->pages);
      for (std::int64_t page; !stop && (page = next_page++) < pages;) check_page(page, buffer);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
      stop = true;
    }
  }

  void check_page(std::int64_t page, std::vector<std::byte>& buffer) {
    const packed::Header& header = *store.header_;
    const std::uint64_t begin = packed::kHeaderBytes + static_cast<std::uint64_t>(page) * header.page_bytes;
    const std::uint64_t end = std::min(begin + header.page_bytes, header.index_offset());
    buffer.resize(end - begin);
    store.read_at(begin, buffer, "a page");
    const std::uint64_t crc_at = header.page_crcs_offset() + static_cast<std::uint64_t>(page) * 4;
    const auto stored = detail::load_le<std::uint32_t>(store.tail(crc_at, crc_at + 4));
    const bool whole = crc32c(buffer) == stored;

    std::vector<Damage> here;
    std::uint64_t free = begin;  // first byte after the samples so far
    bool explained = whole;
    for (std::int64_t i = first_reaching(begin); i < store.size(); ++i) {
      const Entry entry = store.entry(i);
      if (entry.offset >= end) break;
      explained = padding(free, std::max(entry.offset, begin), begin, buffer, here) || explained;
      free = std::min(entry.offset + entry.length, end);
      const bool in_page = entry.offset >= begin && entry.offset + entry.length <= end;
      // A sample that spans pages is checked on its first page, later only to explain a damaged page.
      if (!in_page && entry.offset < begin && whole) continue;
      const std::uint32_t crc =
          in_page ? crc32c(std::span(buffer).subspan(entry.offset - begin, entry.length)) : long_crc(entry);
      if (crc == entry.crc) continue;
      explained = true;
      if (entry.offset < begin) continue;
      here.push_back({static_cast<std::int64_t>(entry.offset), entry.length, i,
                      fmt::format("sample {} ({} bytes): its CRC must be {:08x}, but is {:08x}", i,
                                  entry.length, entry.crc, crc)});
    }
    explained = padding(free, end, begin, buffer, here) || explained;
    if (!explained) {
      here.push_back(
          {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin), -1,
           fmt::format("page {}: its CRC must be {:08x}, but is {:08x}", page, stored, crc32c(buffer))});
    }
    const std::lock_guard lock(mutex);
    found.insert(found.end(), here.begin(), here.end());
    done += static_cast<std::int64_t>(end - begin);
    if (progress && !progress(done)) stop = true;
  }

  /// Checks that bytes [from, to) of the file, which belong to no sample, are 0. Returns whether one is not.
  static bool padding(std::uint64_t from, std::uint64_t to, std::uint64_t begin,
                      const std::vector<std::byte>& buffer, std::vector<Damage>& found) {
    if (from >= to) return false;
    const auto first = buffer.begin() + static_cast<std::ptrdiff_t>(from - begin);
    const auto last = buffer.begin() + static_cast<std::ptrdiff_t>(to - begin);
    const auto bad = std::find_if(first, last, [](std::byte byte) { return byte != std::byte{0}; });
    if (bad == last) return false;
    const auto offset = static_cast<std::int64_t>(from) + (bad - first);
    found.push_back(
        {offset, 1, -1, fmt::format("padding: must be 0, but is {}", std::to_integer<int>(*bad))});
    return true;
  }

  /// CRC of a sample that spans pages: piece by piece, to save memory.
  std::uint32_t long_crc(const Entry& entry) const {
    std::vector<std::byte> piece(std::min<std::uint64_t>(entry.length, std::uint64_t{1} << 20));
    std::uint32_t crc = 0;
    for (std::uint64_t done_bytes = 0; done_bytes < entry.length; done_bytes += piece.size()) {
      piece.resize(std::min<std::uint64_t>(piece.size(), entry.length - done_bytes));
      store.read_at(entry.offset + done_bytes, piece, "a sample");
      crc = crc32c(piece, crc);
    }
    return crc;
  }

  /// The first sample that ends after `offset`, or starts there.
  std::int64_t first_reaching(std::uint64_t offset) const {
    std::int64_t low = 0, high = store.size();
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      const Entry entry = store.entry(middle);
      if (entry.offset >= offset || entry.offset + entry.length > offset) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

std::vector<Damage> PackedStore::verify(int threads,
                                        const std::function<bool(std::int64_t)>& progress) const {
  ATH_CHECK(threads > 0, "packed file: threads must be positive, but got {}", threads);
  Verifier verifier{*this, progress};
  {
    std::vector<std::jthread> helpers;
    for (int i = 1; i < threads; ++i) helpers.emplace_back([&] { verifier.work(); });
    verifier.work();
  }
  if (verifier.error) std::rethrow_exception(verifier.error);
  std::vector<Damage> found = std::move(verifier.found);
  std::sort(found.begin(), found.end(), [](const Damage& a, const Damage& b) { return a.offset < b.offset; });
  const packed::ContentId id =
      packed::content_id(*header_, tail(header_->index_offset(), header_->names_offset()),
                         tail(header_->names_offset(), header_->page_crcs_offset()),
                         tail(header_->page_crcs_offset(), header_->footer_offset()));
  if (id != header_->content_id) {
    found.insert(found.begin(), {16, 16, -1,
                                 fmt::format("content id: must be {}, but is {}", packed::hex(id),
                                             packed::hex(header_->content_id))});
  }
  return found;
}

}  // namespace athanor
