#include "simt/emulator/program_memory.h"

#include <algorithm>
#include <cstddef>

#include <link.h>

namespace simt::race {
namespace {

// The thread_local block of the thread that runs kernels, in each module: static shared memory lies there. No
// destructor: a thread's last kernels run when its thread_local objects die, which wait for their device.
struct Ranges {
  static constexpr int kMax = 64;
  Range of[kMax];
  int count = 0;
};

const Ranges& thread_local_ranges() {
  static thread_local constinit Ranges ranges;
  if (ranges.count == 0) {
    dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* to) {
          auto& found = *static_cast<Ranges*>(to);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& segment = info->dlpi_phdr[i];
            const auto* begin = static_cast<const char*>(info->dlpi_tls_data);
            if (segment.p_type == PT_TLS && begin && found.count < Ranges::kMax)
              found.of[found.count++] = {begin, begin + segment.p_memsz};
          }
          return 0;
        },
        &ranges);
  }
  return ranges;
}

}  // namespace

bool is_thread_local(const char* address) {
  const Ranges& ranges = thread_local_ranges();
  const auto contains = [&](const Range& range) { return range.contains(address); };
  return std::any_of(ranges.of, ranges.of + ranges.count, contains);
}

ProgramMemory program_memory(const char* address) {
  struct Query {
    const char* address;
    ProgramMemory found = ProgramMemory::none;
  } query{address};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& asked = *static_cast<Query*>(data);
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& segment = info->dlpi_phdr[i];
          const auto* begin = reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr);
          if (segment.p_type == PT_LOAD && asked.address >= begin &&
              asked.address < begin + segment.p_memsz) {
            asked.found = (segment.p_flags & PF_W) != 0 ? ProgramMemory::variable : ProgramMemory::constant;
          }
        }
        return 0;
      },
      &query);
  return query.found;
}

}  // namespace simt::race
