// Forward passes of networks as they are served. `peer_infer DIR save NETWORK` writes the file of one, as a
// run leaves it; `peer_infer DIR` answers requests about these. The other sides are
// bench/peers/pytorch/infer.py and bench/peers/onnx/infer.py.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "autograd/creation.h"
#include "autograd/grad_mode.h"
#include "autograd/shape.h"
#include "bench/peers/athanor/networks.h"
#include "bench/peers/athanor/worker.h"
#include "kernels/implementations.h"
#include "nn/models/model.h"
#include "trainer/inference/predictor.h"

namespace athanor::peers {
namespace {

namespace fs = std::filesystem;

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
  std::map<std::string, std::set<std::int64_t>> batches;  // of each network
  for (const Workload& workload : workloads()) batches[workload.network].insert({1, 64, workload.batch});
  for (const auto& [model, sizes] : batches) {
    const fs::path file = folder / (model + ".safetensors");
    for (const std::int64_t batch : sizes) {
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
  if (argc != 4 || std::string_view(argv[2]) != "save") {
    std::fputs("usage: peer_infer DIR [save NETWORK]\n", stderr);
    return 2;
  }
  const std::string model = argv[3];
  peers::save_network(model, std::filesystem::path(argv[1]) / (model + ".safetensors"));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
