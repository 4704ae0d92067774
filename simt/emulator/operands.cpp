#include "simt/emulator/operands.h"

#include <fmt/format.h>

#include "simt/emulator/runtime.h"

namespace simt {

void refuse(const char* instruction, unsigned thread, const std::string& what, const Site& site) {
  throw Refusal{
      fmt::format("{}: thread {} {}, at {}", instruction, executor().name(thread), what, place(site))};
}

void check_address(const char* instruction, unsigned thread, const void* address, std::size_t alignment,
                   Where where, const Site& site) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
    refuse(instruction, thread,
           fmt::format("gives the address {}, which is not a multiple of {}", address, alignment), site);
  }
  // Static shared memory has no bounds that are known here: it is what is neither an allocation nor a stack.
  const bool local = executor().on_a_stack(address), global = runtime().memory.find(address) != nullptr;
  if (where == Where::shared && (local || global || (race::kOn && !race::is_shared(address)))) {
    refuse(instruction, thread, fmt::format("gives the address {}, which is not shared memory", address),
           site);
  }
  if (where == Where::global && (local || executor().shared().contains(address))) {
    refuse(instruction, thread, fmt::format("gives the address {}, which is not global memory", address),
           site);
  }
}

}  // namespace simt
