#include "simt/emulator/symbols.h"

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <dlfcn.h>
#include <fmt/format.h>

#if defined(SIMT_LIBBACKTRACE)
#include <backtrace.h>
#endif

// From a code address to a source line, by libbacktrace, which g++ brings along, or else by the program
// addr2line. Both know which functions were inlined at the address, innermost first.

namespace simt {
namespace {

struct Frame {
  std::string file;
  int line;
};

std::string_view base_name(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? path : path.substr(slash + 1);
}

// With the last slash: the folder simt/, as the compiler was told it: perhaps no more than "simt/", which
// other paths may hold, too.
constexpr std::string_view kFolder = [] {
  constexpr std::string_view kHere = "emulator/symbols.cpp";
  std::string_view path = __FILE__;
  path.remove_suffix(kHere.size());
  return path;
}();

bool of_emulator(const Frame& frame) {
  const auto at = frame.file.rfind(kFolder);
  if (at == std::string::npos) return false;
  const std::string_view rest = std::string_view(frame.file).substr(at + kFolder.size());
  return rest.starts_with("emulator/") || rest.starts_with("include/");
}

std::string write(const Frame& frame) {
  return fmt::format("{}:{}", base_name(frame.file), frame.line);
}

#if defined(SIMT_LIBBACKTRACE)
std::vector<Frame> frames_at(const char* address) {
  static backtrace_state* const state = backtrace_create_state(
      nullptr, 1, [](void*, const char*, int) {}, nullptr);
  std::vector<Frame> frames;
  backtrace_pcinfo(
      state, reinterpret_cast<std::uintptr_t>(address),
      [](void* to, std::uintptr_t, const char* file, int line, const char*) {
        if (file) static_cast<std::vector<Frame>*>(to)->push_back({file, line});
        return 0;
      },
      [](void*, const char*, int) {}, &frames);
  return frames;
}
#else
std::vector<Frame> frames_at(const char* address) {
  Dl_info module;
  if (!dladdr(address, &module)) return {};
  const auto offset = static_cast<std::size_t>(address - static_cast<const char*>(module.dli_fbase));
  std::vector<Frame> frames;
  FILE* const output =
      popen(fmt::format("addr2line -i -e '{}' {:#x}", module.dli_fname, offset).c_str(), "r");
  if (!output) return {};
  char text[1024];
  while (std::fgets(text, sizeof(text), output)) {
    const std::string_view line(text);
    const auto colon = line.rfind(':');
    const int number = colon == line.npos ? 0 : std::atoi(text + colon + 1);
    if (number > 0) frames.push_back({std::string(line.substr(0, colon)), number});
  }
  pclose(output);
  return frames;
}
#endif

// The emulator, and what of the C++ library stands between it and a kernel.
bool of_nobody(const Frame& frame) {
  return frame.line == 0 || of_emulator(frame) || frame.file.find("/include/c++/") != std::string::npos;
}

}  // namespace

const std::string& calls_at(const void* return_address) {
  static auto& known = *new std::unordered_map<const void*, std::string>;
  const auto [found, is_new] = known.try_emplace(return_address);
  if (is_new) {
    for (const Frame& frame : frames_at(static_cast<const char*>(return_address) - 1)) {
      if (!of_nobody(frame)) found->second += ", from " + write(frame);
    }
  }
  return found->second;
}

std::string line_of(const void* return_address) {
  const std::vector<Frame> frames = frames_at(static_cast<const char*>(return_address) - 1);
  auto first = frames.begin();
  while (first != frames.end() && of_emulator(*first)) ++first;
  if (first == frames.end()) return "?";
  auto kernel = first;
  while (kernel != frames.end() && !kernel->file.ends_with(".cu")) ++kernel;
  if (kernel == frames.end() || kernel == first) return write(*first);
  return write(*first) + ", from " + write(*kernel);
}

}  // namespace simt
