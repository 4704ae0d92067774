
#include "fuzz.h"
#include "nn/torch/detail/torch_tensors.h"
#include "tests/support/torch_writer.h"

using namespace athanor;

// The first byte says what follows: a file, or the pickle in a zip file, whose CRC-32 no chance would find.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string file(fuzz::text_of(data + 1, size - 1));
  if ((data[0] & 1) != 0)
    file = test::new_torch_file(file, {{"0", std::string(256, 'x')}, {"1", "12345678"}});
  try {
    const bool averages = (data[0] & 2) != 0;
    const auto contents = torch_file::read_contents(std::as_bytes(std::span(file)), "x.pth", averages);
    if (contents.tensors.empty()) std::abort();
    for (const torch_file::StoredBytes& stored : contents.storages) {
      if (stored.begin > file.size() || stored.bytes > file.size() - stored.begin) std::abort();
    }
    for (const torch_file::TensorInfo& tensor : contents.tensors) {
      __int128 last = tensor.offset;
      for (int i = 0; i < tensor.shape.rank(); ++i)
        last += static_cast<__int128>(tensor.shape[i] - 1) * tensor.strides[i];
      const std::uint64_t bytes = contents.storages.at(tensor.storage).bytes;
      const bool empty = tensor.shape.numel() == 0;
      if (tensor.name.empty() || tensor.offset < 0 ||
          (!empty && last >= static_cast<__int128>(bytes / size_of(tensor.dtype))))
        std::abort();
      if (static_cast<std::uint64_t>(tensor.shape.numel()) > file.size()) std::abort();
    }
  } catch (const IoError& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
