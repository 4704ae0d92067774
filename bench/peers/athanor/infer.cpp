// Forward passes of networks as they are served. `peer_infer DIR save` writes their files, as a run leaves
// them; `peer_infer DIR` answers requests about these. The other sides are bench/peers/pytorch/infer.py and
// bench/peers/onnx/infer.py.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "autograd/creation.h"
#include "autograd/elementwise.h"
#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "bench/peers/athanor/worker.h"
#include "kernels/implementations.h"
#include "nn/models/model.h"
#include "nn/torch_layout.h"
#include "trainer/checkpoints/state_file.h"
#include "trainer/inference/predictor.h"

namespace athanor::peers {
namespace {

namespace fs = std::filesystem;

const char* const kNetworks[] = {"lenet5", "resnet20", "resnet18_cifar"};
constexpr std::int64_t kBatches[] = {1, 64};

/// As large as keeps the variance of activations, by PyTorch's shapes; norms about 1, and their shifts small.
Tensor made_up_weight(const std::string& name, const Shape& shape, std::uint32_t seed) {
  const Tensor values = made_up(shape, seed);
  if (shape.rank() > 1) {
    const auto fan_in = static_cast<double>(values.numel()) / static_cast<double>(shape[0]);
    return affine(values, std::sqrt(6 / fan_in), 0);
  }
  const bool is_scale = name.ends_with("running_var") || name.ends_with(".weight");
  return is_scale ? affine(values, 0.3, 1) : affine(values, 0.1, 0);
}

void save(const std::string& model, const fs::path& file) {
  const auto network = nn::make_model(model, {}, 0);
  const StateDict fresh = nn::to_torch_layout(*network, network->state_dict());
  StateDict weights;
  std::uint32_t seed = 0;
  for (const std::string& name : fresh.names()) {
    if (name.ends_with("num_batches_tracked")) continue;
    weights.set(name, made_up_weight(name, fresh.tensor(name).shape(), seed));
    seed += 1000;
  }
  network->load_state_dict(nn::from_torch_layout(*network, weights));
  const nn::ModelOptions options = nn::model_options(model);
  const auto channels = static_cast<std::size_t>(options.in_channels);
  ModelInfo info;
  info.program = "peer_infer";
  info.model = model;
  info.images = {options.image_size, options.image_size, options.in_channels, options.classes};
  info.pixels = {std::vector<double>(channels, 0.5), std::vector<double>(channels, 0.25)};
  save_state_file(file, StateFile::model, model_state(info, network->state_dict()));
}

/// Images whose pixels the others have in the order of images, channels, rows, columns.
Tensor made_up_images(const ImageSpec& spec, std::int64_t batch) {
  return clone(permute(made_up({batch, spec.channels, spec.height, spec.width}, 7), {0, 2, 3, 1}));
}

Ready prepare_packed(const fs::path& file, std::int64_t batch) {
  const auto predictor = std::make_shared<const Predictor>(file);
  const Tensor images = made_up_images(predictor->info().images, batch);
  return {[predictor, images] { predictor->logits(images); }, predictor->logits(images).to_vector()};
}

/// As a training's validation computes it.
Ready prepare_plain(const fs::path& file, std::int64_t batch, DType dtype) {
  const ModelFile saved = load_model(file);
  const std::shared_ptr<nn::Module> network = nn::make_model(saved.info.model, {}, 0);
  network->load_state_dict(saved.weights);
  network->to(dtype);
  network->eval();
  const Tensor images = cast(made_up_images(saved.info.images, batch), dtype);
  const auto run = [network, images] {
    const InferenceMode inference;
    return (*network)(images);
  };
  return {[run] { run(); }, run().to_vector()};
}

std::vector<PeerCase> cases(const fs::path& folder) {
  std::vector<PeerCase> all;
  for (const std::string model : kNetworks) {
    const fs::path file = folder / (model + ".safetensors");
    for (const std::int64_t batch : kBatches) {
      all.push_back({fmt::format("{}/f32/infer-b{}", model, batch), 0,
                     [file, batch] { return prepare_packed(file, batch); }});
      for (const DType dtype : {DType::f32, DType::bf16})
        all.push_back({fmt::format("{}/{}/unpacked-b{}", model, dtype, batch), 0,
                       [file, batch, dtype] { return prepare_plain(file, batch, dtype); }});
    }
  }
  return all;
}

}  // namespace
}  // namespace athanor::peers

int main(int argc, char** argv) try {
  using namespace athanor;
  if (argc == 2) return peers::serve(peers::cases(argv[1]), cpu_implementations());
  if (argc != 3 || std::string_view(argv[2]) != "save") {
    std::fputs("usage: peer_infer DIR [save]\n", stderr);
    return 2;
  }
  for (const std::string model : peers::kNetworks)
    peers::save(model, std::filesystem::path(argv[1]) / (model + ".safetensors"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
