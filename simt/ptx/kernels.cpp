#include "simt/ptx/kernels.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include <elf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "simt/emulator/asynchronous.h"
#include "simt/emulator/plain_memory.h"
#include "simt/emulator/runtime.h"
#include "simt/launch.h"
#include "simt/ptx/instructions.h"

// From the address of a kernel to its symbol, by the program's own symbol table, and from there to the entry
// of nvcc's.

namespace simt::ptx {
namespace {

const Module*& first_module() {
  static const Module* result = nullptr;
  return result;
}

// ---- names

/// nvcc: 41_GLOBAL__N__8c49f7e2_9_update_cu_3739d5d7, g++: 12_GLOBAL__N_1.
std::string with_plain_namespaces(std::string_view name) {
  constexpr std::string_view kUnnamed = "_GLOBAL__N__";
  std::string plain;
  for (;;) {
    const std::size_t found = name.find(kUnnamed);
    if (found == name.npos) return plain + std::string(name);
    std::size_t digits = found;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') --digits;
    const std::size_t length = std::stoul(std::string(name.substr(digits, found - digits)));
    plain += name.substr(0, digits);
    plain += "12_GLOBAL__N_1";
    name.remove_prefix(std::min(name.size(), found + length));
  }
}

/// Without the types of parameters: in the name of a kernel that is a template these follow "EEv"; else, if
/// it is in no namespace, its own name, as in _Z6kernelPf.
std::string_view before_parameters(std::string_view name) {
  if (const std::size_t end = name.find("EEv"); end != name.npos) return name.substr(0, end);
  if (!name.starts_with("_Z")) return name;
  std::size_t at = 2, length = 0;
  for (; at < name.size() && name[at] >= '0' && name[at] <= '9'; ++at)
    length = 10 * length + static_cast<std::size_t>(name[at] - '0');
  const std::size_t end = at + length;
  return length == 0 || end >= name.size() || name[end] == 'I' ? name : name.substr(0, end);
}

// ---- the program's symbols

struct Symbol {
  std::string_view name, file;  // the file of one that is not seen by others; else ""
};

/// The program as a file, for as long as it runs.
std::span<const char> program() {
  static const std::span<const char> mapped = [] {
    const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    struct stat status {};
    void* memory = MAP_FAILED;
    if (file >= 0 && fstat(file, &status) == 0) {
      memory = mmap(nullptr, static_cast<std::size_t>(status.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    }
    if (file >= 0) close(file);
    if (memory == MAP_FAILED) throw std::runtime_error("the program cannot read its own file");
    return std::span(static_cast<const char*>(memory), static_cast<std::size_t>(status.st_size));
  }();
  return mapped;
}

/// Where the program has been loaded.
std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the first is the program
      },
      &address);
  return address;
}

std::optional<Symbol> symbol_at(const void* address) {
  const char* const file = program().data();
  const auto& header = *reinterpret_cast<const ElfW(Ehdr)*>(file);
  const std::span sections(reinterpret_cast<const ElfW(Shdr)*>(file + header.e_shoff), header.e_shnum);
  const auto value = reinterpret_cast<std::uintptr_t>(address) - load_address();
  for (const auto& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* const names = file + sections[section.sh_link].sh_offset;
    std::string_view source;  // of the local symbols that follow
    for (const auto& symbol : std::span(reinterpret_cast<const ElfW(Sym)*>(file + section.sh_offset),
                                        section.sh_size / sizeof(ElfW(Sym)))) {
      const auto type = ELF64_ST_TYPE(symbol.st_info);
      if (type == STT_FILE) source = names + symbol.st_name;
      if (type != STT_FUNC || symbol.st_value != value) continue;
      const bool is_local = ELF64_ST_BIND(symbol.st_info) == STB_LOCAL;
      return Symbol{names + symbol.st_name, is_local ? source : std::string_view()};
    }
  }
  return {};
}

// ---- launches

void begin_block_of(const Kernel& kernel, unsigned threads, std::size_t dynamic_bytes) {
  begin_block(threads, static_cast<const Entry*>(kernel.address)->dynamic_begin + dynamic_bytes);
}
constexpr async::BlockWork kWork = {&begin_block_of, &run_one, &end_block, &what_is_missing};

/// What is known of a kernel that has been launched. Without an entry it runs as g++ compiled it.
struct Known {
  const void* address;
  const Entry* entry;
};

const Entry* entry_at(const void* address) {
  static Vector<Known> all;
  for (const Known& known : all) {
    if (known.address == address) return known.entry;
  }
  const std::optional<Symbol> symbol = symbol_at(address);
  if (!symbol) throw std::runtime_error("its address has no symbol: is the program stripped?");
  const bool is_of_nvcc = symbol->file.empty() || symbol->file.ends_with(".cu");
  const Entry* const entry = is_of_nvcc ? entry_of(symbol->name, symbol->file) : nullptr;
  all.push_back({address, entry});
  return entry;
}

KernelForm translated(const Launch& how, const Kernel& kernel) {
  try {
    const Entry* const entry = entry_at(kernel.address);
    return entry ? kernel_of(*entry, how, kernel.parameters) : KernelForm{kernel};
  } catch (const std::runtime_error& error) {
    throw Failure{cudaErrorNotSupported, fmt::format("kernel {}: {}", how.name, error.what())};
  }
}

}  // namespace

Module::Module(const char* source, std::span<const Entry> entries)
    : source_(source), entries_(entries), next_(first_module()) {
  first_module() = this;
  substitute_kernels(&translated);
}

const Entry* entry_of(std::string_view symbol, std::string_view file) {
  const std::string whole = with_plain_namespaces(symbol);
  const std::string_view name = before_parameters(whole);
  const Entry* found = nullptr;
  const char* many = nullptr;  // the source that has more than one
  bool is_left_out = false;
  for (const Module* module = first_module(); module; module = module->next()) {
    if (!file.empty() && file != module->source()) continue;
    is_left_out = is_left_out || module->entries().empty();
    const Entry* like = nullptr;  // of this module: a header's kernel is in several
    for (const Entry& entry : module->entries()) {
      const std::string plain = with_plain_namespaces(entry.name);
      if (plain == whole) return &entry;
      if (before_parameters(plain) != name) continue;
      if (like) many = module->source();
      found = like = &entry;
    }
  }
  if (many)
    throw std::runtime_error(fmt::format("more than one kernel of the PTX of {} may be {}", many, symbol));
  if (found || is_left_out) return found;
  throw std::runtime_error(
      fmt::format("the PTX of {} has no kernel {}", file.empty() ? "all files" : file, symbol));
}

KernelForm kernel_of(const Entry& entry, const Launch& how, std::span<const Parameter> parameters) {
  const auto same = [](const Parameter& a, const Parameter& b) {
    return a.offset == b.offset && a.bytes == b.bytes;
  };
  if (!std::ranges::equal(parameters, entry.parameters, same)) {
    const auto list = [](std::span<const Parameter> of) {
      std::string text;
      for (const Parameter& each : of) text += fmt::format(" {}+{}", each.offset, each.bytes);
      return text;
    };
    throw std::runtime_error(fmt::format("its parameters (offset+bytes) are{} to g++, but{} in the PTX, {}",
                                         list(parameters), list(entry.parameters), entry.name));
  }
  const unsigned threads = how.block.x * how.block.y * how.block.z;
  if (threads > entry.max_threads) {
    throw std::runtime_error(
        fmt::format("a block of {} threads, but .maxntid says {}", threads, entry.max_threads));
  }
  if (entry.static_bytes + how.shared_bytes > kSharedBytesPerBlockOptin) {
    throw std::runtime_error(fmt::format("{} bytes of shared memory and {} of dynamic, but a block has {}",
                                         entry.static_bytes, how.shared_bytes, kSharedBytesPerBlockOptin));
  }
  return {{&entry, entry.body, parameters}, &kWork};
}

}  // namespace simt::ptx
