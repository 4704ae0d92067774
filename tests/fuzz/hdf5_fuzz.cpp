#include <pthread.h>
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>

#include "data/formats/import/hdf5.h"
#include "fuzz.h"

using namespace athanor;

// libhdf5 runs in a child, where it may do what it likes; what it does to the parent is a finding. The
// child's own end must not be recorded as one, nor a size it asks for: what libFuzzer writes down has a
// relative name, and cannot be written where the child is.
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  return pthread_atfork(nullptr, nullptr, [] {
    __sanitizer_set_death_callback(nullptr);
    if (chdir("/proc") != 0) std::abort();
  });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = fuzz::put("a.h5", fuzz::text_of(data, size));
  try {
    const auto samples = read_hdf5(file, {.patience_s = 10});
    for (std::int64_t i = 0; i < samples->size(); ++i) {
      if (samples->next().label >= samples->spec().classes) std::abort();
    }
  } catch (const IoError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
