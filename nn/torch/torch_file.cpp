#include "nn/torch/torch_file.h"

#include <array>
#include <map>
#include <utility>

#include "nn/torch/detail/torch_tensors.h"
#include "nn/torch/detail/zip_directory.h"
#include "tensor/base/error.h"
#include "tensor/io/loaded_file.h"
#include "tensor/io/regular_file.h"

namespace athanor::torch_file {
namespace {

/// A file's bytes as storages of tensors.
class Storages {
 public:
  Storages(Ref<LoadedFile> file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  Ref<Storage> operator()(const StoredBytes& stored, DType dtype) {
    const auto bytes = file_->bytes().subspan(stored.begin, stored.bytes);
    if (reinterpret_cast<std::uintptr_t>(bytes.data()) % size_of(dtype) == 0)
      return make_ref<Storage>(bytes.data(), bytes.size(), file_);
    Ref<Storage>& copy = copies_[stored.begin];
    if (!copy) {
      copied_ += stored.bytes;
      if (copied_ > file_->bytes().size())
        athanor::detail::fail<IoError>("torch file: {}: storages must not overlap", path_);
      const auto elements = static_cast<std::int64_t>(bytes.size());
      copy = Tensor::from_bytes(bytes, {elements}, {DType::u8, kCpu}).storage();
    }
    return copy;
  }

 private:
  Ref<LoadedFile> file_;
  std::string path_;
  std::map<std::uint64_t, Ref<Storage>> copies_;  // by offset in the file
  std::uint64_t copied_ = 0;
};

}  // namespace

bool is_torch_file(const std::filesystem::path& path) {
  const RegularFile file(path);
  if (!file.problem().empty())
    athanor::detail::fail<IoError>("torch file: {} {}", path.string(), file.problem());
  std::array<std::byte, 9> first{};
  (void)file.read_at(0, first);
  // A safetensors file begins with its header's length, possibly any byte, but then has a brace.
  return zip::is_zip(first) || (first[0] == std::byte{0x80} && first[8] != std::byte{'{'});
}

StateDict load(const std::filesystem::path& path, WeightParts* parts, bool averages) {
  const auto file = make_ref<LoadedFile>(path, "torch file");
  file->read_to(file->bytes().size());
  const Contents contents = read_contents(file->bytes(), path.string(), averages);
  Storages storages(file, path.string());
  StateDict weights;
  for (const TensorInfo& info : contents.tensors) {
    weights.set(info.name, Tensor::wrap(storages(contents.storages[info.storage], info.dtype), info.offset,
                                        info.shape, info.strides, info.dtype));
  }
  if (parts) *parts = contents.parts;
  return weights;
}

}  // namespace athanor::torch_file
