#include "fuzz.h"
#include "tensor/base/printable.h"
#include "tensor/io/regular_file.h"
#include "tensor/io/safetensors.h"

using namespace athanor;

/// A header, whose length is made to fit, and the bytes of tensors. What is read must be there, and texts
/// must stay what they are.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = fuzz::split_parts(fuzz::text_of(data, size), 2);
  std::string length(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(parts[0].size() >> 8 * i);
  const auto path = fuzz::put("a.safetensors", length + std::string(parts[0]) + std::string(parts[1]));
  (void)RegularFile(path).kind();
  try {
    safetensors::Metadata metadata;
    const StateDict entries = safetensors::load(path, &metadata);
    unsigned sum = 0;
    for (const StateDict::Entry& entry : entries) {
      const Tensor* const tensor = std::get_if<Tensor>(&entry.value);
      for (std::size_t i = 0; tensor && i < tensor->bytes(); ++i)
        sum += std::to_integer<unsigned>(tensor->raw_data()[i]);
    }
    if (sum == 0xdeadbeef) (void)entries.size();  // so that no byte is left out
    for (const auto& [key, value] : metadata) {
      if (percent_decoded(percent_encoded(value)) != value) std::abort();
      if (printable(key + value).find('\n') != std::string::npos) std::abort();
    }
  } catch (const Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
