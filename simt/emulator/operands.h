#pragma once

#include "simt/emulator/cuda/site.h"
#include "simt/emulator/executor.h"
#include "simt/emulator/race.h"
#include "simt/emulator/waiting.h"

// What instructions demand of the addresses that they are given, and what they tell the race detector.

namespace simt {

enum class Where : std::uint8_t { shared, global };

/// Fails the kernel where the address is not aligned, or in another kind of memory.
void check_address(const char* instruction, unsigned thread, const void* address, std::size_t alignment,
                   Where where, const Site& site);

/// Fails the kernel with "NAME: thread (1,0,0) WHAT, at k.cu:20". Thrown, and caught where the thread began:
/// so that nothing on its stack is lost.
[[noreturn]] void refuse(const char* instruction, unsigned thread, const std::string& what, const Site& site);

}  // namespace simt
