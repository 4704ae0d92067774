#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "simt/emulator/kernel_call.h"

// Kernels as nvcc has compiled them: PTX, made C++ by translate.py. A program that is linked with some runs
// them wherever it launches a kernel.

namespace simt::ptx {

/// An .entry.
struct Entry {
  const char* name;  ///< in PTX
  ThreadBody body;
  std::span<const Parameter> parameters;  ///< which of them are pointers is not known
  std::uint32_t static_bytes;             ///< of shared memory
  std::uint32_t dynamic_begin;            ///< where in the window dynamic shared memory begins
  std::uint32_t max_threads;              ///< of a block: .maxntid
};

/// The entries of a source, for as long as the program runs. With the first, launches of kernels that are not
/// among those of any source are errors, which name the symbol. Run as g++ compiled them are kernels of files
/// that are not .cu, which nvcc does not see, and of sources that are left out: those without entries.
class Module {
 public:
  explicit Module(const char* source, std::span<const Entry> entries = {});

  const char* source() const { return source_; }
  std::span<const Entry> entries() const { return entries_; }
  const Module* next() const { return next_; }

 private:
  const char* source_;
  std::span<const Entry> entries_;
  const Module* next_;
};

/// The entry that has a symbol of g++'s, which a file of that name defines; of a file that is not known, "",
/// that of any. nvcc has another name for unnamed namespaces; and types of parameters, which follow the
/// arguments of a template, may be written in another way. Null: of a source that is left out. Throws
/// std::runtime_error if there is none, or more than one.
const Entry* entry_of(std::string_view symbol, std::string_view file);

/// The kernel that runs instead of one that g++ compiled. Throws std::runtime_error where their parameters
/// are not laid out alike, where the block has more threads than .maxntid, or too much shared memory.
KernelForm kernel_of(const Entry& entry, const Launch& how, std::span<const Parameter> parameters);

}  // namespace simt::ptx
