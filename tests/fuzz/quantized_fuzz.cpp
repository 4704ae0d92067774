#include <algorithm>
#include <cstring>

#include "autograd/creation.h"
#include "autograd/grad_mode.h"
#include "fuzz.h"
#include "kernels/cpu/context.h"
#include "nn/models/model.h"
#include "nn/quantized/quantized_network.h"
#include "trainer/inference/model_file.h"

using namespace athanor;

namespace {

constexpr ImageSpec kImages{8, 8, 1, 10};

/// A quantized network whose kernels compute with integers, sums and gates among them.
const ModelFile& whole() {
  static const ModelFile file = [] {
    cpu_context().set_threads(1);
    ModelFile model;
    model.info.program = "fuzz";
    model.info.model = "digits_cnn";
    model.info.images = kImages;
    model.info.pixels = {{0.5}, {0.5}};
    model.info.quantized = kInt8;
    const auto network = nn::make_model(model.info.model, {10, 1, 8}, 1);
    nn::Calibration calibration(*network, {8, 8, 1});
    calibration.observe(randn({16, 8, 8, 1}, RandomKey{1, 2}));
    model.weights = nn::quantize(calibration)->state_dict();
    return model;
  }();
  return file;
}

/// Takes bytes from the front; zeros when there are no more.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  bool empty() const { return left_ == 0; }
  template <class T> T take() {
    T value{};
    const std::size_t size = std::min(sizeof(T), left_);
    std::memcpy(&value, data_, size);
    data_ += size;
    left_ -= size;
    return value;
  }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

/// Another tensor of the same bytes, as far as there are any: of any dtype and shape.
Tensor reinterpreted(const Tensor& x, Bytes& bytes) {
  const DType dtype = kDTypes[bytes.take<std::uint8_t>() % std::size(kDTypes)];
  Shape shape;
  std::int64_t numel = 1;
  for (int rank = bytes.take<std::uint8_t>() % 6; rank > 0; --rank) {
    const std::int64_t size = bytes.take<std::uint8_t>() % 40;
    if (numel * size > 4096) break;
    numel *= size;
    shape.push_back(size);
  }
  const Tensor other = Tensor::zeros(shape, {dtype});
  const std::size_t common = std::min(x.bytes(), other.bytes());
  if (common > 0) std::memcpy(other.raw_data(), x.raw_data(), common);  // of no bytes there is no address
  return other;
}

/// Entries changed, exchanged, renamed and left out.
StateDict changed(const StateDict& right, Bytes& bytes) {
  std::vector<StateDict::Entry> entries(right.begin(), right.end());
  while (!bytes.empty()) {
    const std::uint8_t how = bytes.take<std::uint8_t>() % 8;
    StateDict::Entry& entry = entries[bytes.take<std::uint8_t>() % entries.size()];
    const StateDict::Entry& other = entries[bytes.take<std::uint8_t>() % entries.size()];
    if (how == 0) entry.name = other.name + "x";
    if (how == 1) entry.value = other.value;
    if (how == 2) entry.value = bytes.take<double>();
    const Tensor* const tensor = std::get_if<Tensor>(&entry.value);
    if (how == 3 && tensor) entry.value = reinterpreted(*tensor, bytes);
    if (how < 4 || !tensor || tensor->bytes() == 0) continue;
    const Tensor copy =
        Tensor::from_bytes({tensor->raw_data(), tensor->bytes()}, tensor->shape(), {tensor->dtype()});
    const auto value = bytes.take<std::uint64_t>();
    const std::size_t size = size_of(copy.dtype()), first = bytes.take<std::uint16_t>();
    const bool all = how == 4;
    for (std::size_t at = all ? 0 : first * size % copy.bytes(); at < copy.bytes(); at += size) {
      std::memcpy(copy.raw_data() + at, &value, size);
      if (!all) break;
    }
    entry.value = copy;
  }
  StateDict state;
  for (const StateDict::Entry& entry : entries)
    if (!state.contains(entry.name)) state.set(entry.name, entry.value);
  return state;
}

}  // namespace

/// Edits of a good file's entries. What is read must also compute, whatever its numbers.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Bytes bytes(data, size);
  const auto path = fuzz::folder() / "model.safetensors";
  save_model(path, whole().info, changed(whole().weights, bytes));
  try {
    const ModelFile file = load_model(path);
    const auto network = make_network(file);
    network->eval();
    const InferenceMode inference;
    const Tensor found = (*network)(randn({2, 8, 8, 1}, RandomKey{3, 4}));
    if (found.shape() != Shape{2, 10}) std::abort();
  } catch (const Error& error) {
    if (std::string_view(error.what()).find('\n') != std::string_view::npos) std::abort();
  }
  return 0;
}
