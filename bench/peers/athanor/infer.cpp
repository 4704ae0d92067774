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
#include "nn/quantized/calibration.h"
#include "nn/quantized/quantized_network.h"
#include "trainer/inference/predictor.h"

namespace athanor::peers {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kCalibrationImages = 8;  // bench/peers/onnx/infer.py has the same

Ready prepare_packed(const fs::path& file, std::int64_t batch, Precision precision) {
  const auto predictor = std::make_shared<const Predictor>(file, kCpu, TestViews::none, precision);
  const Tensor images = made_up_images(predictor->info().images, batch);
  return {[predictor, images] { predictor->logits(images); }, predictor->logits(images).to_vector()};
}

/// Calibrated on images of other values than those that are timed.
Ready prepare_int8(const fs::path& file, std::int64_t batch) {
  OpenModel model = open_model(file);
  const ImageSpec& spec = model.file.info.images;
  nn::Calibration calibration(*model.network, {spec.height, spec.width, spec.channels});
  const Tensor seen = made_up_images(spec, kCalibrationImages + 1);  // the first is timed
  calibration.observe(contiguous(narrow(seen, 0, 1, kCalibrationImages)));
  const auto predictor = std::make_shared<const Predictor>(nn::quantize(calibration), model.file.info);
  const Tensor images = made_up_images(spec, batch);
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
      for (const Precision precision : {Precision::f32, Precision::bf16})
        all.push_back({fmt::format("{}/{}/infer-b{}", model, name_of(precision), batch), 0,
                       [file, batch, precision] { return prepare_packed(file, batch, precision); }});
      all.push_back({fmt::format("{}/int8/infer-b{}", model, batch), 0,
                     [file, batch] { return prepare_int8(file, batch); }});
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
