#pragma once

#include <cstdint>

// What of the memory that kernels reach is neither the device's nor on their stacks.

namespace simt::race {

struct Range {
  const char* begin = nullptr;
  const char* end = nullptr;
  bool contains(const char* address) const { return address >= begin && address < end; }
};

/// In a thread_local block of this thread of the host: static shared memory lies there.
bool is_thread_local(const char* address);

/// Where the program, or a library it has loaded, has its constants or globals; __device__ and __constant__
/// variables are among the latter.
enum class ProgramMemory : std::uint8_t { none, constant, variable };
ProgramMemory program_memory(const char* address);

}  // namespace simt::race
