#include <cstring>

#include <fmt/format.h>

#include "simt/async_copy.h"
#include "simt/emulator/asynchronous.h"
#include "simt/emulator/operands.h"

// cp.async, and what all asynchronous work of a block has in common.

namespace simt {
namespace async {
namespace {

struct Copy {
  char* to;
  const char* from;
  unsigned bytes, source_bytes;
  const void* pc;
};

std::vector<Groups<Copy>>& copies() {
  static auto& result = *new std::vector<Groups<Copy>>;
  return result;
}

void perform(const Copy& copy) {
  std::memcpy(copy.to, copy.from, copy.source_bytes);
  std::memset(copy.to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

}  // namespace

bool late() {
  return options().async == Async::late;
}

bool& used() {
  static bool result = false;
  return result;
}

void begin_block(const Kernel&, unsigned threads, std::size_t) {
  if (!used() && copies().size() == threads) return;
  used() = false;
  copies().assign(threads, {});
  begin_block_barriers();
  begin_block_bulk();
  begin_block_warpgroups(threads);
}

std::string end_block() {
  if (!used()) return {};
  for (const auto end : {end_block_barriers, end_block_warpgroups}) {
    if (std::string wrong = end(); !wrong.empty()) return wrong;
  }
  return {};
}

constinit const BlockWork kEmulated = {&begin_block, &run_one, &end_block, &what_is_missing};

void probe([[maybe_unused]] const void* address, [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
  const auto* at = static_cast<const volatile char*>(address);
  for (std::size_t i = 0; i < bytes; i += 8) (void)at[i];
  if (bytes > 0) (void)at[bytes - 1];
#endif
}

}  // namespace async

namespace emulated {

void cp_async(void* to, const void* from, unsigned bytes, int source_bytes, const Site& site) {
  const unsigned thread = executor().current_thread();
  if (source_bytes < 0 || source_bytes > static_cast<int>(bytes)) {
    refuse("cp.async", thread, fmt::format("copies {} bytes of a source of {}", bytes, source_bytes), site);
  }
  const auto read = static_cast<unsigned>(source_bytes);
  check_address("cp.async", thread, to, bytes, Where::shared, site);
  if (read > 0) check_address("cp.async", thread, from, bytes, Where::global, site);
  async::probe(to, bytes);
  async::probe(from, read);
  async::used() = true;
  const async::Copy copy{static_cast<char*>(to), static_cast<const char*>(from), bytes, read,
                         __builtin_return_address(0)};
  const race::Asynchronous under_way{.under_way = true};
  if (read > 0) race::access_by(thread, from, read, Access::read, copy.pc, under_way);
  race::access_by(thread, to, bytes, Access::write, copy.pc, under_way);
  if (async::late()) {
    std::memset(copy.to, 0xff, bytes);
  } else {
    async::perform(copy);
  }
  async::copies()[thread].open.push_back(copy);
}

void cp_async_commit() {
  async::copies()[executor().current_thread()].commit();
}

void cp_async_wait(unsigned groups) {
  const unsigned thread = executor().current_thread();
  async::copies()[thread].finish(groups, [&](const async::Copy& copy) {
    if (async::late()) async::perform(copy);
    race::settle(thread, copy.from, copy.source_bytes, copy.pc);
    race::settle(thread, copy.to, copy.bytes, copy.pc);
  });
}

}  // namespace emulated
}  // namespace simt
