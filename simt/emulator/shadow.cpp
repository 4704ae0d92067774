#include "simt/emulator/shadow.h"

#include <algorithm>

namespace simt::race {

Shadow::Page& Shadow::make_page(std::uintptr_t key) {
  Page& page = pages_[key];
  if (page.cells.empty()) page.cells.resize(kPageBytes / kCoarse);
  return page;
}

void Shadow::split(Page& page) {
  Vector<Cell> cells(kPageBytes);
  for (std::size_t byte = 0; byte < kPageBytes; ++byte) cells[byte] = page.cells[byte / kCoarse];
  page.cells = std::move(cells);
  page.fine = true;
}

void Shadow::forget(const char* begin, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(begin), end = first + bytes;
  for (std::uintptr_t at = first; at < end;) {
    const std::uintptr_t key = at / kPageBytes, stop = std::min(end, (key + 1) * kPageBytes);
    const auto page = pages_.find(key);
    if (page != pages_.end() && stop - at == kPageBytes) {
      pages_.erase(page);
      recent_[key % kRecent] = {};
    } else if (page != pages_.end()) {
      for_each(reinterpret_cast<const char*>(at), stop - at, [](Cell& cell) { cell = {}; });
    }
    at = stop;
  }
}

}  // namespace simt::race
